"""What stands in for a GPU where tensors have no data: its kernels, its autocast, its meshes."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh


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
def gpu_kernels(mesh: DeviceMesh | None) -> Iterator[None]:
    """Choose operations as for a GPU: flash attention at any length, and no oneDNN."""
    with (
        mock.patch("train.model.parallelize.make_mesh", return_value=mesh and _Mesh(mesh)),
        # FSDP over tensor parallelism makes a mesh of its own.
        mock.patch.object(DeviceMesh, "__init__", _with_data(DeviceMesh.__init__)),
        mock.patch("train.model.attention._MATERIALIZE_TOKENS", 0),
        mock.patch("train.model.linear._ONEDNN", False),
    ):
        yield


@contextlib.contextmanager
def gpu_arithmetic() -> Iterator[None]:
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
