"""A run starts from the weights of its seed, and no rank holds all of them to draw them.

tests/train/pretrain/test_ranks.py compares the weights of several ranks.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from configs.checks.batch import divide
from configs.load import expect, load
from configs.schema import Pretrain
from train.cost.storages import StorageTracker
from train.engine.distributed import Ranks
from train.model.build import build_network
from train.model.parallelize import parallelize
from train.weights.load import InitialNetwork


def config_of(*keys: str) -> Pretrain:
    small = ["model.width=64", "model.depth=2", "model.heads=4", "train.compile=false", *keys]
    path = Path("configs/pretrain/digits.yaml")
    return expect(load(path, small), Pretrain, source=path)


def filled(config: Pretrain, *, world: int = 1) -> torch.nn.Module:
    """The part of rank 0 among ranks that cannot communicate: drawing needs no messages."""
    initial = InitialNetwork(config)
    cpu = torch.device("cpu")
    ranks = Ranks(rank=0, world=world, local_rank=0, local_world=world, device=cpu)
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        layout = divide(config, world=world, tuned=1)
        parallelize(initial.network, config, layout=layout, ranks=ranks, fill=initial.fill)
    finally:
        dist.destroy_process_group()
    return initial.network


@pytest.mark.parametrize(
    "keys",
    [
        ["model.mlp=swiglu"],
        ["model.positions=sincos"],
        ["model.family=unet", "model.unet.width=32", "model.unet.layers=1"],
    ],
    ids=["adaLN", "sinusoids", "U-Net"],
)
def test_the_weights_are_those_of_the_network_built_on_the_cpu_to_the_bit(keys: list[str]) -> None:
    config = config_of(*keys)
    found, expected = filled(config).state_dict(), build_network(config).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("layout", ["layout.shard=4", "layout.tensor=4"])
def test_no_rank_holds_the_whole_network_to_start(layout: str) -> None:
    config = config_of("model.depth=8", layout)
    with StorageTracker() as storages:
        storages.mark("fill")
        network = filled(config, world=4)
    whole = 4 * sum(parameter.numel() for parameter in network.parameters())
    largest = 4 * max(parameter.numel() for parameter in network.parameters())
    assert storages.held < 0.5 * whole
    assert max(storages.segments[0].held) <= storages.held + 2 * largest
