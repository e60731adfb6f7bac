"""One training step of a pretraining on fake tensors, which hold no data, as rank 0 runs it.

Network, layout, optimizer and EMA are those of a run, on a process group that sends nothing, and
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
from torch.distributed.fsdp import FSDPModule

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.cost.fake_gpu import fake_ranks, gpu_autocast, gpu_compiler, gpu_kernels
from train.cost.fit import Trial, fit_cost
from train.cost.line import Stack, StepCost
from train.cost.storages import StorageTracker, mark_passes
from train.diffusion.objective import DiffusionObjective
from train.engine.distributed import Ranks, make_mesh
from train.engine.ema import EMA, batch_decay
from train.model.build import Network, build_network
from train.model.parallelize import autocast, is_sharded, parallelize
from train.model.routing import routed
from train.pretrain.optimizer import make_optimizer
from train.pretrain.train_state import make_projection, zero_batch

_CPU = torch.device("cpu")


def count_cost(config: Pretrain, layout: BatchLayout, stacks: Mapping[str, Stack]) -> StepCost:
    """Return the cost of a step of `layout`, from steps of networks of few blocks."""

    def run(images: int, depths: Mapping[str, int]) -> Trial:
        depth = depths.get("blocks", config.model.depth)
        model = config.model.model_copy(update={"depth": depth})
        smaller = config.model_copy(update={"model": model})
        return run_step(smaller, dataclasses.replace(layout, micro_batch=images))

    return fit_cost(run, stacks, images=2 * config.objective.group)


def run_step(config: Pretrain, layout: BatchLayout) -> Trial:
    """Return the memory and FLOPs of the second step of a run on rank 0 of `layout`."""
    model = config.model.model_copy(update={"init_from": None})
    # The CPU has no float16 autocast here; bfloat16 takes the same memory.
    precision = "bf16" if config.train.precision == "fp16" else config.train.precision
    train = {"compile": bool(config.train.compile), "precision": precision, "float8": False}
    train_keys = config.train.model_copy(update=train)
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
            return _Steps(config, layout, storages).second()


class _Steps:
    """The first steps of a run."""

    def __init__(self, config: Pretrain, layout: BatchLayout, storages: StorageTracker) -> None:
        self._config, self._layout, self._storages = config, layout, storages
        with torch.device("meta" if is_sharded(layout) else _CPU):
            self._network = build_network(config)
        self._numbers = sum(parameter.numel() for parameter in self._network.parameters())
        self._model = _parallelized(self._network, config, layout)
        for number, block in enumerate(cast(Network, self._network).blocks):
            mark_passes(block, "blocks", number, storages)
        self._projection = make_projection(config, _CPU)
        self._held = {"parameters": storages.held}
        self._ema = EMA(self._network, decay=batch_decay(config), warmup=False)
        self._held["average"] = storages.held - sum(self._held.values())
        before = storages.held
        self._optimizer = make_optimizer(self._network, config, projection=self._projection)
        self._held["optimizer"] = storages.held - before
        self._objective = DiffusionObjective(config, _CPU)

    def second(self) -> Trial:
        """Return the memory and FLOPs of the second step."""
        storages, layout = self._storages, self._layout
        _, first_gradients = self._passes()
        held = storages.held
        self._update(1)
        # Lazily made moments stay; the gradients go.
        moments = storages.held - held + first_gradients
        if layout.world > 1 and not is_sharded(layout):
            # DDP keeps its buckets between steps, and gradients are views of them.
            for parameter in self._network.parameters():
                parameter.grad = torch.zeros_like(parameter)
        storages.segments.clear()
        storages.flops = 0
        activations, gradients = self._passes()
        storages.mark("update")
        self._update(2)
        self._held["optimizer"] += moments
        kinds = self._held | {
            "gradients": max(first_gradients, gradients),
            "activations": activations,
            "numbers": self._numbers,
            "flops": storages.flops,
        }
        return Trial(kinds=kinds, segments=storages.segments)

    def _passes(self) -> tuple[int, int]:
        """Return the bytes of activations and of gradients; two microbatches stand for any more."""
        config, storages = self._config, self._storages
        images, microbatches = self._layout.micro_batch, min(self._layout.accumulation, 2)
        before, activations, apart = storages.held, 0, list[Tensor | None]()
        for number in range(microbatches):
            storages.mark(f"microbatch {number}")
            if isinstance(self._model, FSDPModule):
                self._model.set_requires_gradient_sync(number == microbatches - 1)
            batch = zero_batch(config, images=images, device=_CPU)
            held = storages.held
            with autocast(config.train.precision, _CPU):
                losses = self._objective.training_losses(
                    routed(self._model, batch.keep), batch.image, batch.noise, batch.t, batch.label,
                    features=batch.features, projection=self._projection,
                )  # fmt: skip
            activations = storages.held - held
            losses.sum().backward()
            del losses, batch
            if number < microbatches - 1 and config.gns.enabled and self._layout.data_ranks == 1:
                # One rank measures the noise between the gradients of single microbatches.
                apart = [parameter.grad for parameter in self._network.parameters()]
                self._optimizer.zero_grad(set_to_none=True)
        del apart
        return activations, storages.held - before

    def _update(self, step: int) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._ema.update(step)


def _parallelized(network: nn.Module, config: Pretrain, layout: BatchLayout) -> nn.Module:
    ranks = Ranks(rank=0, world=layout.world, local_rank=0, local_world=1, device=_CPU)
    if is_sharded(layout):
        return parallelize(network, config, layout=layout, ranks=ranks)
    # The network is on its device already, and torch cannot move fake parameters.
    alone = dataclasses.replace(layout, replicate=1)
    with mock.patch.multiple(network, to=mock.DEFAULT, to_empty=mock.DEFAULT):
        return parallelize(network, config, layout=alone, ranks=ranks)
