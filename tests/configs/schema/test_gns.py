"""Configs that measure gradient noise: valid keys, and the microbatches to compare."""

from pathlib import Path

import pytest

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import load
from configs.schema import Pretrain

CONFIG = Path("configs/pretrain/digits.yaml")


def config_of(*keys: str) -> Pretrain:
    config = load(CONFIG, ["gns.enabled=true", *keys])
    assert isinstance(config, Pretrain)
    return config


def test_one_microbatch_per_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="has one per step"):
        divide(config_of("train.micro_batch=null"), world=1)


def test_tensor_parallelism_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set layout.tensor to 1"):
        config_of("layout.tensor=2")


@pytest.mark.parametrize(
    ("world", "keys", "microbatches"),
    [
        (1, ["train.micro_batch=16"], (4, 16)),
        (4, [], (4, 16)),
        (4, ["train.micro_batch=8"], (4, 16)),
        (4, ["layout.shard=2"], (4, 16)),
        (2, ["layout.shard=2", "train.micro_batch=8"], (2, 32)),
    ],
)
def test_microbatches_are_the_shares_of_ranks_or_those_of_a_single_rank(
    world: int, keys: list[str], microbatches: tuple[int, int]
) -> None:
    layout = divide(config_of(*keys), world=world)
    assert (layout.noise_count, layout.noise_batch) == microbatches
