"""Configs that measure gradient noise: valid keys, and the microbatches to compare."""

from pathlib import Path

import pytest

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import load
from configs.schema import Pretrain

CONFIG = Path("configs/pretrain/digits.yaml")


def config_of(*keys: str) -> Pretrain:
    config = load(CONFIG, ["gns.enabled=true", "gns.bins=4", *keys])
    assert isinstance(config, Pretrain)
    return config


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["train.micro_batch=null"], "has one per step"),
        (["train.micro_batch=1"], "set it to 2"),
        (["train.micro_batch=8", "objective.sampler=stratified"], "divisor of 8"),
    ],
)
def test_microbatches_that_cannot_be_compared_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        divide(config_of(*keys), world=1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["layout.tensor=2"], "set layout.tensor to 1"),
        (["model.conditioning=adaln_single"], "gns.bins to null"),
    ],
)
def test_models_and_layouts_without_the_hooks_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*keys)


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
