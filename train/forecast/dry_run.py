"""The memory of a rank, counted by carrying out a training step on tensors without data.

The network, its layout, the optimizer and the average are those that a run would have, on a
process group that sends nothing; no GPU is needed. The step runs as it would eagerly: what
`train.compile` saves is not seen.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.diffusion.objective import DiffusionObjective
from train.engine.distributed import Ranks, make_mesh
from train.engine.ema import EMA, batch_decay
from train.forecast.fake_gpu import gpu_arithmetic, gpu_kernels
from train.forecast.memory_tracker import StorageTracker
from train.model.parallelize import DTYPES, is_sharded, parallelize
from train.pretrain.optimizer import make_optimizer
from train.weights.init import initial_network

_DEVICE = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class DryRunMemory:
    """Bytes on one rank: what stays between steps, what the forward pass keeps, and the most."""

    parameters: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    peak: int


def count_memory(config: Pretrain, layout: BatchLayout) -> DryRunMemory:
    """The memory of rank 0 of `layout`, from the second step of a run on."""
    train = config.train.model_copy(update={"compile": False})
    model = config.model.model_copy(update={"init_from": None})
    config = config.model_copy(update={"train": train, "model": model})
    with (
        _ranks(layout) as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        StorageTracker() as storages,
        gpu_arithmetic(),
        gpu_kernels(mesh),
    ):
        return _steps(config, layout, storages)


def _steps(config: Pretrain, layout: BatchLayout, storages: StorageTracker) -> DryRunMemory:
    network = initial_network(config, layout, resumes=is_sharded(layout))
    model = _laid_out(network, config, layout)
    parameters = storages.held
    average = EMA(network, decay=batch_decay(config.train), warmup=False)
    averaged = storages.held - parameters
    optimizer = make_optimizer(network, config.optimizer)
    step = _Step(config, layout, network, model, storages)
    step.run()
    held = storages.held
    optimizer.step()
    states = storages.held - held
    average.update(1)
    optimizer.zero_grad(set_to_none=True)
    if layout.world > 1 and not is_sharded(layout):
        # The buckets of DDP, which gradients are views of, stay between steps.
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
    storages.peak = storages.held
    step.run()
    optimizer.step()
    average.update(2)
    return DryRunMemory(
        parameters=parameters,
        gradients=step.gradients,
        optimizer=states,
        average=averaged,
        activations=step.activations,
        peak=storages.peak,
    )


class _Step:
    """Forward and backward passes as the training loop does them."""

    def __init__(
        self,
        config: Pretrain,
        layout: BatchLayout,
        network: nn.Module,
        model: nn.Module,
        storages: StorageTracker,
    ) -> None:
        self._config, self._layout, self._storages = config, layout, storages
        self._network, self._model = network, model
        self._objective = DiffusionObjective(config, _DEVICE)
        self.activations = self.gradients = 0

    def run(self) -> None:
        """Gradients of all the microbatches of a step; two of them stand for any number."""
        data, micro = self._config.data, self._layout.micro_batch
        image = torch.zeros(micro, data.channels, data.size, data.size)
        noise, label = torch.zeros_like(image), torch.zeros(micro, dtype=torch.long)
        before = self._storages.held
        for number in range(min(self._layout.accumulation, 2)):
            last = number == min(self._layout.accumulation, 2) - 1
            if isinstance(self._model, FSDPModule):
                self._model.set_requires_gradient_sync(last)
            held = self._storages.held
            with self._autocast():
                losses = self._objective.losses(self._model, image, noise, label.float(), label)
            self.activations = self._storages.held - held
            losses.sum().backward()
            del losses
        self.gradients = max(self.gradients, self._storages.held - before)

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self._config.train.precision]
        lower = dtype is not torch.float32
        # A CPU has no float16 of its own here; bfloat16 takes the same room.
        return torch.autocast("cpu", torch.bfloat16, enabled=lower)


def _laid_out(network: nn.Module, config: Pretrain, layout: BatchLayout) -> nn.Module:
    alone = dataclasses.replace(layout, replicate=1)
    ranks = Ranks(rank=0, world=layout.world, local_rank=0, local_world=1, device=_DEVICE)
    if is_sharded(layout):
        return parallelize(network, config, layout=layout, ranks=ranks)
    # It is on its device, and torch cannot move parameters without data.
    with mock.patch("train.model.parallelize._materialise"):
        return parallelize(network, config, layout=alone, ranks=ranks)


@contextlib.contextmanager
def _ranks(layout: BatchLayout) -> Iterator[DeviceMesh | None]:
    """A process group of the world's size that sends nothing, and the mesh over it."""
    dist.init_process_group("fake", rank=0, world_size=layout.world, store=FakeStore())
    try:
        yield make_mesh(layout, _DEVICE) if layout.world > 1 else None
    finally:
        dist.destroy_process_group()
