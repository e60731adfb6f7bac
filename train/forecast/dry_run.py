"""Count the memory of a rank by running training steps on fake tensors, which hold no data.

Network, layout, optimizer and EMA are those of a run, on a process group that sends nothing. No
GPU is needed. The steps run eagerly: the memory that `train.compile` saves is not included.
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.diffusion.objective import DiffusionObjective
from train.engine.distributed import Ranks, make_mesh
from train.engine.ema import EMA, batch_decay
from train.forecast.estimate import Forecast, forecast_with
from train.forecast.fake_gpu import gpu_autocast, gpu_kernels
from train.forecast.memory import Memory, overhead
from train.forecast.query import ForecastQuery
from train.model.build import build_network, network_macs
from train.model.parallelize import autocast, is_sharded, parallelize
from train.model.routing import first_patches, routed
from train.pretrain.optimizer import make_optimizer

_DEVICE = torch.device("cpu")


class StorageTracker(TorchDispatchMode):
    """Within the `with` block: the bytes `held` by tensors made in it, and their `peak`.

    To measure the peak of a section, set `peak` to `held` at its start. MemTracker of
    `torch.distributed._tools` counts the same by module, at ten times the cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held, self.peak = 0, 0
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count the storages it makes; of a DTensor, its local part."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        output = func(*args, **(kwargs or {}))
        for value in output if isinstance(output, (list, tuple)) else (output,):
            # A wrapper around other tensors, such as an 8-bit weight, has no bytes of its own.
            is_wrapper = is_traceable_wrapper_subclass(value)
            if isinstance(value, Tensor) and value.device.type != "meta" and not is_wrapper:
                self._track(value.untyped_storage())
        return output

    def __enter__(self) -> "StorageTracker":
        # FSDP frees and fills its parameters by resizing storages, which is not an operation.
        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            resized = self._resize(storage, size)
            if storage._cdata in self._sizes:
                self._set_size(storage._cdata, size)
            return resized

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*details)

    def _track(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name not in self._sizes:
            self._sizes[name] = 0
            self._set_size(name, storage.nbytes())
            weakref.finalize(storage, self._forget, name).atexit = False

    def _set_size(self, name: int, size: int) -> None:
        self.held += size - self._sizes[name]
        self._sizes[name] = size
        self.peak = max(self.peak, self.held)

    def _forget(self, name: int) -> None:
        self.held -= self._sizes.pop(name)


def dry_run(config: Pretrain, layout: BatchLayout) -> Memory:
    """Return the memory of rank 0 of `layout` from the second step of a run on.

    `activations` are those kept from the forward to the backward pass.
    """
    train = config.train.model_copy(update={"compile": False})
    model = config.model.model_copy(update={"init_from": None})
    config = config.model_copy(update={"train": train, "model": model})
    with (
        _fake_ranks(layout) as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        StorageTracker() as storages,
        gpu_autocast(),
        gpu_kernels(mesh),
    ):
        return _two_steps(config, layout, storages)


def _two_steps(config: Pretrain, layout: BatchLayout, storages: StorageTracker) -> Memory:
    with torch.device("meta" if is_sharded(layout) else _DEVICE):
        network = build_network(config)
    model = _parallelized(network, config, layout)
    parameters = storages.held
    ema = EMA(network, decay=batch_decay(config), warmup=False)
    averaged = storages.held - parameters
    held = storages.held
    optimizer = make_optimizer(network, config)
    states = storages.held - held
    objective = DiffusionObjective(config, _DEVICE)
    _, first_gradients = _forward_backward(config, layout, model, objective, storages)
    held = storages.held
    optimizer.step()
    states += storages.held - held
    ema.update(1)
    optimizer.zero_grad(set_to_none=True)
    if layout.world > 1 and not is_sharded(layout):
        # DDP keeps its buckets between steps, and gradients are views of them.
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
    storages.peak = storages.held
    activations, gradients = _forward_backward(config, layout, model, objective, storages)
    optimizer.step()
    ema.update(2)
    return Memory(
        parameters=parameters,
        gradients=max(first_gradients, gradients),
        optimizer=states,
        average=averaged,
        activations=activations,
        overhead=overhead(layout, peak=storages.peak),
        peak=storages.peak,
    )


def _forward_backward(
    config: Pretrain,
    layout: BatchLayout,
    model: nn.Module,
    objective: DiffusionObjective,
    storages: StorageTracker,
) -> tuple[int, int]:
    """Return the bytes of activations and of gradients; two microbatches stand for any more."""
    data, images = config.data, layout.micro_batch
    # The CPU has no float16 autocast here; bfloat16 takes the same memory.
    precision = "bf16" if config.train.precision == "fp16" else config.train.precision
    image = torch.zeros(images, data.channels, data.size, data.size)
    noise, label = torch.zeros_like(image), torch.zeros(images, dtype=torch.long)
    before, activations = storages.held, 0
    microbatches = min(layout.accumulation, 2)
    for number in range(microbatches):
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(number == microbatches - 1)
        held = storages.held
        with autocast(precision, _DEVICE):
            network = routed(model, first_patches(config, images, _DEVICE))
            losses = objective.training_losses(network, image, noise, label.float(), label)
        activations = storages.held - held
        losses.sum().backward()
        del losses
    return activations, storages.held - before


def _parallelized(network: nn.Module, config: Pretrain, layout: BatchLayout) -> nn.Module:
    ranks = Ranks(rank=0, world=layout.world, local_rank=0, local_world=1, device=_DEVICE)
    if is_sharded(layout):
        return parallelize(network, config, layout=layout, ranks=ranks)
    # The network is on its device already, and torch cannot move fake parameters.
    alone = dataclasses.replace(layout, replicate=1)
    with mock.patch.multiple(network, to=mock.DEFAULT, to_empty=mock.DEFAULT):
        return parallelize(network, config, layout=alone, ranks=ranks)


@contextlib.contextmanager
def _fake_ranks(layout: BatchLayout) -> Iterator[DeviceMesh | None]:
    """Provide a process group of `layout.world` ranks that sends nothing, and its mesh."""
    dist.init_process_group("fake", rank=0, world_size=layout.world, store=FakeStore())
    try:
        yield make_mesh(layout, _DEVICE) if layout.world > 1 else None
    finally:
        dist.destroy_process_group()


def forecast_unet(query: ForecastQuery) -> Forecast:
    """Return the forecast for a U-Net, whose memory has no closed form, by dry runs."""
    with torch.device("meta"):
        network = build_network(query.config)
    return forecast_with(
        query,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        macs=network_macs(query.config),
        memory_of=_UNetMemory().memory,
    )


class _UNetMemory:
    """Memory, linear in the micro batch by dry runs of 4 and 8 images; fewer have their own."""

    def __init__(self) -> None:
        self._runs: dict[tuple[int, bool], Memory] = {}

    def memory(self, config: Pretrain, layout: BatchLayout) -> Memory:
        """Return the memory of one rank, like `dit_memory`."""
        images = layout.micro_batch
        if images < 4:
            return self._run(config, layout, images)
        few, many = (self._run(config, layout, size) for size in (4, 8))
        along = (images - 4) / 4
        peak = few.peak + along * (many.peak - few.peak)
        kept = few.activations + along * (many.activations - few.activations)
        outside = overhead(layout, peak=peak)
        return dataclasses.replace(many, peak=peak, activations=kept, overhead=outside)

    def _run(self, config: Pretrain, layout: BatchLayout, images: int) -> Memory:
        key = images, layout.accumulation > 1
        if key not in self._runs:
            smaller = dataclasses.replace(layout, micro_batch=images)
            self._runs[key] = dry_run(config, smaller)
        return self._runs[key]
