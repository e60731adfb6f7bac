"""A batch and a mesh divide over the ranks, or are refused."""

from typing import Any

import pytest

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import merge, resolve
from configs.schema import Pretrain

MICRO, BATCH, SHARD = "train.micro_batch", "train.global_batch", "layout.shard"
NOISE = {"gns.enabled": True, BATCH: 64}


def config(keys: dict[str, Any]) -> Pretrain:
    return resolve(merge({}, keys), source="x")


@pytest.mark.parametrize(
    ("keys", "world", "expected"),
    [
        ({BATCH: 64, MICRO: 4}, 8, {"micro_batch": 4, "accumulation": 2}),
        ({BATCH: 64}, 4, {"micro_batch": 16, "accumulation": 1}),
        ({SHARD: 2}, 8, {"replicate": 4, "shard": 2}),
        # The microbatches of the gradient noise are the shares of ranks, or those of a single rank.
        (NOISE | {MICRO: 16}, 1, {"noise_count": 4, "noise_batch": 16}),
        (NOISE | {MICRO: 8}, 4, {"noise_count": 4, "noise_batch": 16}),
        (NOISE | {SHARD: 2}, 4, {"noise_count": 4, "noise_batch": 16}),
        (NOISE | {SHARD: 2, MICRO: 8}, 2, {"noise_count": 2, "noise_batch": 32}),
    ],
)
def test_a_batch_divides(keys: dict[str, Any], world: int, expected: dict[str, int]) -> None:
    layout = divide(config(keys), world=world)
    assert {name: getattr(layout, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("keys", "world", "message"),
    [
        ({BATCH: 64}, 3, "does not divide over 3 data ranks; 63 or 66 would"),
        ({BATCH: 2}, 4, "does not divide over 4 data ranks; 4 would"),
        ({BATCH: 64, MICRO: 5}, 4, "does not divide the 16 images of a data rank"),
        ({SHARD: 3}, 4, "replicate null x shard 3 x tensor 1 does not make 4 ranks"),
        ({"layout.replicate": 3}, 4, "replicate 3 x shard 1 x tensor 1 does not make 4 ranks"),
        (NOISE, 1, "has one per step"),
        (NOISE | {"layout.tensor": 2}, 2, "set layout.tensor to 1"),
    ],
)
def test_a_batch_that_does_not_divide_is_refused(
    keys: dict[str, Any], world: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        divide(config(keys), world=world)
