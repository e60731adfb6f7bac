"""Imitate a GPU on fake CPU tensors: its kernels, its autocast rules and its device meshes."""

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


class _RealMesh:
    """A device mesh that computes its slices on real tensors."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._slice = _on_real_tensors(mesh.__getitem__)

    def __getitem__(self, names: Any) -> DeviceMesh:
        mesh: DeviceMesh = self._slice(names)
        return mesh


def _on_real_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the fake tensor mode switched off while it runs."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def gpu_kernels(mesh: DeviceMesh | None) -> Iterator[None]:
    """Choose the operations of a GPU: flash attention at any length."""
    with (
        mock.patch("train.model.parallelize.make_mesh", return_value=mesh and _RealMesh(mesh)),
        # FSDP with tensor parallelism makes a mesh of its own.
        mock.patch.object(DeviceMesh, "__init__", _on_real_tensors(DeviceMesh.__init__)),
        mock.patch("train.model.attention._MATERIALIZE_TOKENS", 0),
    ):
        yield


@contextlib.contextmanager
def gpu_autocast() -> Iterator[None]:
    """Apply the rules that autocast has on CUDA but not on a CPU.

    They are norms in float32 and sums in the widest type. Fake CUDA tensors are no alternative:
    torch cannot yet run a backward pass through them on a machine without a GPU.
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
            args = tuple(map(_to_float32, args))
            kwargs = {name: _to_float32(each) for name, each in kwargs.items()}
        return operation(*args, **kwargs)

    return run


def _in_widest(operation: Operation) -> Operation:
    def run(*args: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu") and any(x.dtype == torch.float32 for x in args):
            args = tuple(map(_to_float32, args))
        return operation(*args)

    return run


def _to_float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _fused_rms_norm(
    x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    normed: Tensor = _RmsNorm.apply(x, weight)
    return normed


class _RmsNorm(torch.autograd.Function):
    """The output and the saved tensors of the fused GPU kernel; the CPU kernel saves more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        """Return a fake output `[..., d]` like `x`, contiguous."""
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1)))
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return fake gradients."""
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight)
