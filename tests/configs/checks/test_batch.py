"""A batch and a mesh divide over the ranks, or are refused."""

import pytest

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import resolve


def config(**flat: object):
    tree: dict[str, dict[str, object]] = {}
    for name, value in flat.items():
        group, _, leaf = name.partition("__")
        tree.setdefault(group, {})[leaf] = value
    return resolve(tree, source="x")


def test_accumulation_follows_from_global_and_micro_batch() -> None:
    layout = divide(config(train__global_batch=64, train__micro_batch=4), world=8)
    assert (layout.micro_batch, layout.accumulation) == (4, 2)


def test_without_a_micro_batch_a_rank_takes_its_whole_share() -> None:
    layout = divide(config(train__global_batch=64), world=4)
    assert (layout.micro_batch, layout.accumulation) == (16, 1)


def test_replicas_follow_from_the_shards() -> None:
    layout = divide(config(layout__shard=2), world=8)
    assert (layout.replicate, layout.shard) == (4, 2)


@pytest.mark.parametrize(
    ("keys", "world", "message"),
    [
        ({"train__global_batch": 64}, 3, "does not divide over 3 data ranks; 63 or 66 would"),
        ({"train__global_batch": 2}, 4, "does not divide over 4 data ranks; 4 would"),
        (
            {"train__global_batch": 64, "train__micro_batch": 5},
            4,
            "does not divide the 16 images of a data rank",
        ),
        ({"layout__shard": 3}, 4, "replicate null x shard 3 x tensor 1 does not make 4 ranks"),
        ({"layout__replicate": 3}, 4, "replicate 3 x shard 1 x tensor 1 does not make 4 ranks"),
    ],
)
def test_a_batch_that_does_not_divide_is_refused(keys: dict, world: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        divide(config(**keys), world=world)
