"""One training step of a pretraining on fake tensors, which hold no data, as rank 0 runs it.

Network, layout, optimizer and EMA are made as in a run, on a process group that sends nothing, and
compiled blocks are the graphs of torch.compile. No GPU is needed.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import cast
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.cost.fake_gpu import fake_ranks, gpu_autocast, gpu_compiler, gpu_kernels
from train.cost.fit import Trial, fit_cost
from train.cost.line import RunCost, Stack
from train.cost.memory import counts_compiled, measures_noise
from train.cost.storages import StorageTracker, mark_passes
from train.diffusion.alignment import make_alignment
from train.diffusion.objective import DiffusionObjective
from train.engine.distributed import Ranks, make_mesh
from train.engine.ema import EMA
from train.model.build import Network, build_network
from train.model.parallelize import gradient_sync, is_sharded, parallelize
from train.pretrain.optimizer import make_optimizer
from train.pretrain.train_state import TrainState, zero_batch

_CPU = torch.device("cpu")


def count_cost(config: Pretrain, layout: BatchLayout, stacks: Mapping[str, Stack]) -> RunCost:
    """Return the cost of steps of `layout`, from steps of networks of few blocks."""

    def run(images: int, depths: Mapping[str, int]) -> tuple[Trial, Trial]:
        depth = depths.get("blocks", config.model.depth)
        model = config.model.model_copy(update={"depth": depth})
        smaller = config.model_copy(update={"model": model})
        return run_steps(smaller, dataclasses.replace(layout, micro_batch=images))

    return fit_cost(run, stacks, images=2)


def run_steps(config: Pretrain, layout: BatchLayout) -> tuple[Trial, Trial]:
    """Return the memory and FLOPs of a step of one microbatch, and of one of two, on rank 0.

    The first step of a run is left out: it has no gradients and moments yet.
    """
    model = config.model.model_copy(update={"init_from": None})
    train_keys = config.train.model_copy(update={"compile": counts_compiled(config)})
    config = config.model_copy(update={"train": train_keys, "model": model})
    storages = StorageTracker()
    compiler = gpu_compiler(storages) if config.train.compile else contextlib.nullcontext()
    with fake_ranks(layout.world):
        mesh = make_mesh(layout, _CPU) if layout.world > 1 else None
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            storages,
            gpu_autocast(),
            gpu_kernels(mesh),
            compiler,
        ):
            return _Steps(config, layout, storages).later()


class _Steps:
    """The first steps of a run."""

    def __init__(self, config: Pretrain, layout: BatchLayout, storages: StorageTracker) -> None:
        self._config, self._layout, self._storages = config, layout, storages
        with torch.device("meta" if is_sharded(layout) else _CPU):
            network = build_network(config)
        self._numbers = sum(parameter.numel() for parameter in network.parameters())
        model = _parallelized(network, config, layout)
        for number, block in enumerate(cast(Network, network).blocks):
            mark_passes(block, "blocks", number, storages)
        # Networks are on their device already, and torch cannot move fake parameters.
        with mock.patch("torch.nn.Module.to", lambda module, *_, **__: module):
            alignment = make_alignment(config, _CPU)
        self._held = {"parameters": storages.held}
        ema = EMA(network, decay=config.train.ema_decay, warmup=False)
        self._held["average"] = storages.held - self._held["parameters"]
        before = storages.held
        beside = list(alignment.parameters().values()) if alignment else []
        self._state = TrainState(
            config=config,
            network=network,
            model=model,
            objective=DiffusionObjective(config, _CPU),
            optimizer=make_optimizer(network, config, beside=beside),
            ema=ema,
            alignment=alignment,
        )
        self._held["optimizer"] = storages.held - before
        # DDP keeps its buckets between steps, and gradients are views of them.
        self._buckets: dict[nn.Parameter, Tensor] = {}
        if layout.world > 1 and not is_sharded(layout):
            self._buckets = {p: torch.zeros_like(p) for p in network.parameters()}

    def later(self) -> tuple[Trial, Trial]:
        """Return the step of one microbatch, then of two, after a first step."""
        before = self._storages.held
        self._take(1)
        # Moments are made lazily; gradients go.
        self._held["optimizer"] += self._storages.held - before
        return self._take(1), self._take(2)

    def _take(self, microbatches: int) -> Trial:
        storages = self._storages
        storages.segments, storages.flops = [], 0
        for parameter, bucket in self._buckets.items():
            parameter.grad = bucket
        activations, gradients = self._passes(microbatches)
        storages.mark("update")
        self._state.update(1)
        kinds = self._held | {
            "gradients": gradients + sum(bucket.nbytes for bucket in self._buckets.values()),
            "activations": activations,
            "numbers": self._numbers,
            "flops": storages.flops,
        }
        return Trial(kinds=kinds, segments=storages.segments)

    def _passes(self, microbatches: int) -> tuple[int, int]:
        """Return the bytes of activations and of gradients."""
        storages, state = self._storages, self._state
        before, activations, apart = storages.held, 0, list[Tensor | None]()
        for number in range(microbatches):
            storages.mark(f"microbatch {number}")
            with gradient_sync(state.model, last=number == microbatches - 1):
                batch = zero_batch(state.config, images=self._layout.micro_batch, device=_CPU)
                held = storages.held
                losses = state.losses(batch)
                activations = storages.held - held
                losses.sum().backward()
            del losses, batch
            if number < microbatches - 1 and measures_noise(state.config, self._layout):
                # One rank measures the noise between the gradients of single microbatches.
                apart = [parameter.grad for parameter in state.network.parameters()]
                state.optimizer.zero_grad(set_to_none=True)
        del apart
        return activations, storages.held - before


def _parallelized(network: nn.Module, config: Pretrain, layout: BatchLayout) -> nn.Module:
    ranks = Ranks(rank=0, world=layout.world, local_rank=0, local_world=1, device=_CPU)
    if is_sharded(layout):
        return parallelize(network, config, layout=layout, ranks=ranks)
    alone = dataclasses.replace(layout, replicate=1)
    with mock.patch.multiple(network, to=mock.DEFAULT, to_empty=mock.DEFAULT):
        return parallelize(network, config, layout=alone, ranks=ranks)
