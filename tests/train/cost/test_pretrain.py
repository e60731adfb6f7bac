"""The cost of a pretraining is that of a step of the whole network, and of real allocations."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from configs.checks.batch import BatchLayout, divide
from configs.load import load, resolve
from configs.schema import Pretrain
from train.cost.fit import Trial
from train.cost.memory import GIB, overhead, pretrain_memory, stacks_of
from train.cost.pretrain import run_steps
from train.engine.distributed import Ranks, process_group
from train.model.build import build_network
from train.pretrain.train_state import make_train_state, zero_batch

WIDE = {"width": 128, "depth": 8, "heads": 4, "patch": 4}
JIT = {"family": "jit", "depth": 8, "jit": {"class_tokens": 4, "class_tokens_from": 2}}
LATENTS = {"source": "latents", "path": "latents"}
# World size and keys.
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "eager": (1, {}),
    "compiled": (1, {"train": {"compile": True}}),
    "every second, compiled": (
        1,
        {
            "activation_checkpointing": {"mode": "selective", "every": 2},
            "train": {"compile": True},
        },
    ),
    "DDP": (4, {}),
    "FSDP2, compiled, not resharded": (
        4,
        {"layout": {"shard": 4, "reshard": False}, "train": {"compile": True}},
    ),
    "FSDP2, reduced in bf16": (4, {"layout": {"shard": 4}, "train": {"reduce": "bf16"}}),
    "HSDP": (4, {"layout": {"shard": 2}}),
    "TP": (2, {"layout": {"tensor": 2}}),
    "TP, FSDP2, full": (
        4,
        {"layout": {"tensor": 2, "shard": 2}, "activation_checkpointing": {"mode": "full"}},
    ),
    "REPA": (4, {"repa": {"weight": 0.5, "block": 2, "features": 32}, "data": LATENTS}),
    "TREAD": (1, {"model": {"routing": {"kind": "tread"}}}),
    "JiT": (1, {"model": JIT}),
    "JiT, FSDP2, compiled": (
        4,
        {"model": JIT, "layout": {"shard": 4}, "train": {"compile": True}},
    ),
    "Muon": (1, {"optimizer": {"kind": "muon"}}),
    "SwiGLU, adaLN-single": (1, {"model": {"mlp": "swiglu", "conditioning": "adaln_single"}}),
}
# The others stand in `make test-long`.
SHORT = (
    "eager",
    "DDP",
    "FSDP2, compiled, not resharded",
    "TP, FSDP2, full",
    "JiT",
)


def config_of(**groups: dict[str, Any]) -> Pretrain:
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 10} | groups.pop("data", {})
    train = {"compile": False, "global_batch": 64} | groups.pop("train", {})
    model = WIDE | groups.pop("model", {})
    return resolve({"model": model, "data": data, "train": train, **groups}, source="test")


def peak(trial: Trial) -> int:
    """Return the most bytes held at any time of the step."""
    return max(max(segment.held) for segment in trial.segments)


def compare(config: Pretrain, layout: BatchLayout) -> None:
    whole: Trial = run_steps(config, layout)[layout.accumulation > 1]
    found = pretrain_memory(config, layout)
    assert found.peak == pytest.approx(peak(whole), rel=0.01)
    for kind, size in whole.kinds.items():
        if kind != "flops" or layout.accumulation <= 2:
            assert getattr(found, kind) == pytest.approx(size, rel=0.01), kind


@pytest.mark.filterwarnings("ignore")  # the compiler warns
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in CASES]
)
def test_a_few_blocks_give_the_cost_of_all(name: str) -> None:
    world, groups = CASES[name]
    config = config_of(**groups)
    (stack,) = stacks_of(config, divide(config, world=world)).values()
    assert stack.small() < stack.depth
    compare(config, divide(config, world=world))


@pytest.mark.parametrize("world", [1, pytest.param(4, marks=pytest.mark.long)])
def test_accumulated_gradients_are_counted(world: int) -> None:
    config = config_of(train={"micro_batch": 8}, layout={"shard": world})
    layout = divide(config, world=world)
    compare(config, layout)
    once = pretrain_memory(config, dataclasses.replace(layout, accumulation=1))
    all_flops = pretrain_memory(config, layout).flops
    assert all_flops == pytest.approx(layout.accumulation * once.flops)


@pytest.mark.filterwarnings("ignore")
def test_a_unet_is_counted_whole() -> None:
    unet = {"width": 32, "layers": 1, "mults": [1, 2], "attention": [False, True]}
    config = config_of(model={"family": "unet", "unet": unet}, train={"global_batch": 24})
    compare(config, divide(config, world=1))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("path", sorted(Path("configs/pretrain").glob("*.yaml")), ids=str)
def test_every_shipped_config_costs_what_its_whole_network_does(
    path: Path, *, compiled: bool
) -> None:
    config = load(path, [f"train.compile={str(compiled).lower()}"])
    compare(config, divide(config, world=config.resources.world))


def test_parameters_are_those_of_the_network() -> None:
    config = config_of()
    with torch.device("meta"):
        numbers = sum(p.numel() for p in build_network(config).parameters())
    assert pretrain_memory(config, divide(config, world=1)).numbers == numbers


def test_measuring_single_microbatches_takes_one_more_set_of_gradients() -> None:
    model, train = {"width": 512}, {"global_batch": 4, "micro_batch": 2, "precision": "fp32"}
    plain, measured = (
        pretrain_memory(config, divide(config, world=1))
        for config in (
            config_of(model=model, train=train, gns={"enabled": on}) for on in (False, True)
        )
    )
    # The peak grows by less: activations are freed by the time that the gradients are complete.
    assert 0.4 * plain.gradients < measured.peak - plain.peak <= plain.gradients


def test_each_dimension_of_the_mesh_with_several_ranks_takes_a_communicator() -> None:
    groups = {1: {}, 4: {"layout": {"shard": 2}}, 8: {"layout": {"shard": 2, "tensor": 2}}}
    alone, two, three = (
        overhead(divide(config_of(**group), world=world), peak=0) for world, group in groups.items()
    )
    assert two - alone == pytest.approx(0.6 * GIB)
    assert three - alone == pytest.approx(0.9 * GIB)


DIT = {"width": 128, "depth": 6, "heads": 4, "patch": 1, "qk_norm": False}
UNET = {"width": 64, "layers": 1, "mults": [1, 2], "attention": [False, True]}
# Small networks that really train here, on more than 1,024 tokens.
REAL: dict[str, dict[str, Any]] = {
    "DiT": {"model": DIT},
    "DiT, full checkpointing": {"model": DIT, "activation_checkpointing": {"mode": "full"}},
    "DiT, compiled": {"model": DIT, "train": {"compile": True}},
    "U-Net": {"model": {"family": "unet", "unet": UNET}},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if "," in name else ()) for name in REAL],
)
def test_real_steps_allocate_what_was_counted(name: str) -> None:
    # In float32, since autocast on a CPU is not that of a GPU.
    groups = REAL[name]
    train = {"precision": "fp32", "compile": False, "global_batch": 4} | groups.get("train", {})
    data = {"source": "dummy", "size": 36, "channels": 4, "classes": 10}
    config = resolve({"data": data, **groups, "train": train}, source="test")
    found = pretrain_memory(config, divide(config, world=1))
    held = found.parameters + found.optimizer + found.average
    # Past its limit of graphs for one function, torch.compile would run the real blocks eagerly.
    torch._dynamo.reset()
    assert held + allocated_bytes(config) == pytest.approx(found.peak, rel=0.02)


def allocated_bytes(config: Pretrain) -> int:
    """Return the most bytes that a later step here adds to what is held between steps."""
    layout = divide(config, world=1)
    ranks = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))
    with process_group(ranks):
        state = make_train_state(config, layout=layout, ranks=ranks)

        def step() -> None:
            batch = zero_batch(config, images=layout.micro_batch, device=ranks.device)
            state.losses(batch).sum().backward()
            state.update(1)

        step()
        step()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            step()
    held = most = 0
    results: Any = profiler.profiler.kineto_results
    for event in sorted(results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most
