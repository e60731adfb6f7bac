"""The memory of a rank, counted by carrying out a training step on tensors without data.

The network, its layout, the optimizer and the average are those that a run would have, on a
process group that sends nothing; no GPU is needed. The step runs as it would eagerly: what
`train.compile` saves is not seen.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore

from configs.batch import Division
from configs.schema import Pretrain
from train.dist import Ranks, make_mesh
from train.ema import Average, batch_decay
from train.forecast.tracking import Storages
from train.layout import DTYPES, is_sharded, lay_out
from train.objective import Objective
from train.optimizer import make_optimizer
from train.start import start_network

_DEVICE = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Bytes on one rank: what stays between steps, what the forward pass keeps, and the most."""

    parameters: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    peak: int


def count_memory(config: Pretrain, division: Division) -> Counted:
    """The memory of rank 0 of `division`, from the second step of a run on."""
    train = config.train.model_copy(update={"compile": False})
    model = config.model.model_copy(update={"init_from": None})
    config = config.model_copy(update={"train": train, "model": model})
    with (
        _ranks(division) as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        Storages() as storages,
        _gpu_arithmetic(),
        _gpu_kernels(mesh),
    ):
        return _steps(config, division, storages)


def _steps(config: Pretrain, division: Division, storages: Storages) -> Counted:
    network = start_network(config, division, resumes=is_sharded(division))
    model = _laid_out(network, config, division)
    parameters = storages.held
    average = Average(network, decay=batch_decay(config.train), warmup=False)
    averaged = storages.held - parameters
    optimizer = make_optimizer(network, config.optimizer)
    step = _Step(config, division, network, model, storages)
    step.run()
    held = storages.held
    optimizer.step()
    states = storages.held - held
    average.update(1)
    optimizer.zero_grad(set_to_none=True)
    if division.world > 1 and not is_sharded(division):
        # The buckets of DDP, which gradients are views of, stay between steps.
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
    storages.peak = storages.held
    step.run()
    optimizer.step()
    average.update(2)
    return Counted(
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
        division: Division,
        network: nn.Module,
        model: nn.Module,
        storages: Storages,
    ) -> None:
        self._config, self._division, self._storages = config, division, storages
        self._network, self._model = network, model
        self._objective = Objective(config, _DEVICE)
        self.activations = self.gradients = 0

    def run(self) -> None:
        """Gradients of all the microbatches of a step; two of them stand for any number."""
        data, micro = self._config.data, self._division.micro_batch
        image = torch.zeros(micro, data.channels, data.size, data.size)
        noise, label = torch.zeros_like(image), torch.zeros(micro, dtype=torch.long)
        before = self._storages.held
        for number in range(min(self._division.accumulation, 2)):
            last = number == min(self._division.accumulation, 2) - 1
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


def _laid_out(network: nn.Module, config: Pretrain, division: Division) -> nn.Module:
    alone = dataclasses.replace(division, replicate=1)
    ranks = Ranks(rank=0, world=division.world, local_rank=0, local_world=1, device=_DEVICE)
    if is_sharded(division):
        return lay_out(network, config, division=division, ranks=ranks)
    # It is on its device, and torch cannot move parameters without data.
    with mock.patch("train.layout._materialise"):
        return lay_out(network, config, division=alone, ranks=ranks)


@contextlib.contextmanager
def _ranks(division: Division) -> Iterator[DeviceMesh | None]:
    """A process group of the world's size that sends nothing, and the mesh over it."""
    dist.init_process_group("fake", rank=0, world_size=division.world, store=FakeStore())
    try:
        yield make_mesh(division, _DEVICE) if division.world > 1 else None
    finally:
        dist.destroy_process_group()


class _Mesh:
    """A mesh whose slices are computed with data."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._slice = _with_data(mesh.__getitem__)

    def __getitem__(self, names: Any) -> DeviceMesh:
        mesh: DeviceMesh = self._slice(names)
        return mesh


def _with_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, on tensors with data inside a mode without."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def _gpu_kernels(mesh: DeviceMesh | None) -> Iterator[None]:
    """Choose operations as for a GPU: flash attention at any length, and no oneDNN."""
    with (
        mock.patch("train.layout.make_mesh", return_value=mesh and _Mesh(mesh)),
        # FSDP over tensor parallelism makes a mesh of its own.
        mock.patch.object(DeviceMesh, "__init__", _with_data(DeviceMesh.__init__)),
        mock.patch("train.model.attention._TABLE_TOKENS", 0),
        mock.patch("train.model.linear._ONEDNN", False),
    ):
        yield


@contextlib.contextmanager
def _gpu_arithmetic() -> Iterator[None]:
    """Do what autocast does on CUDA and not on a CPU: norms in float32, sums in the widest type.

    torch cannot yet go backward through CUDA tensors without data where there is no GPU.
    """
    with (
        mock.patch("torch.nn.functional.layer_norm", _in_float32(F.layer_norm)),
        mock.patch("torch.nn.functional.group_norm", _in_float32(F.group_norm)),
        mock.patch("torch.nn.functional.rms_norm", _in_float32(_fused_rms_norm)),
        mock.patch("torch.addcmul", _in_widest(torch.addcmul)),
    ):
        yield


Operation = Callable[..., Tensor]


def _in_float32(operation: Operation) -> Operation:
    def run(*args: Any, **kwargs: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args = tuple(map(_widened, args))
            kwargs = {name: _widened(each) for name, each in kwargs.items()}
        return operation(*args, **kwargs)

    return run


def _in_widest(operation: Operation) -> Operation:
    def run(*args: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu") and any(x.dtype == torch.float32 for x in args):
            args = tuple(map(_widened, args))
        return operation(*args)

    return run


def _widened(thing: Any) -> Any:
    return thing.float() if isinstance(thing, Tensor) and thing.is_floating_point() else thing


def _fused_rms_norm(x: Tensor, shape: torch.Size, weight: Tensor, eps: float) -> Tensor:
    normed: Tensor = _RmsNorm.apply(x, weight)
    return normed


class _RmsNorm(torch.autograd.Function):
    """What the fused kernel of a GPU makes and keeps; a CPU keeps a part of its sum more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """A result without data, `[..., d]` as `x`, laid out in order."""
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1)))
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients without data."""
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)
