"""Imitate a GPU on fake CPU tensors: its kernels, autocast rules, compiler and device meshes."""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from train.cost.storages import StorageTracker


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
def fake_ranks(world: int) -> Iterator[None]:
    """Be rank 0 of a process group that sends nothing."""
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


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
# Parts of the names of operations that Inductor does not fuse with others.
_NOT_FUSED = ("mm", "attention", "convolution", "c10d", "scatter", "index_put", "sort")


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


@contextlib.contextmanager
def gpu_compiler(storages: StorageTracker) -> Iterator[None]:
    """Make `nn.Module.compile` run the graphs that torch.compile would, on fake tensors.

    Forward and backward are partitioned as Inductor does. The values that its kernels keep in
    registers have no bytes.
    """
    compile_module = nn.Module.compile

    def compile_for_gpu(module: nn.Module, **options: Any) -> None:
        # Two sizes of the micro batch are two graphs, as each is in its run.
        compile_module(module, backend=_backend(), dynamic=False)

    with (
        mock.patch.object(nn.Module, "compile", compile_for_gpu),
        mock.patch.object(_Kernels, "storages", storages, create=True),
        mock.patch("torch.nn.functional.rms_norm", _in_float32(_decomposed_rms_norm)),
        torch._dynamo.config.patch(recompile_limit=64, accumulated_recompile_limit=4096),
    ):
        yield


@functools.cache
def _backend() -> Any:
    """Return one backend for all networks: those with the same blocks share their graphs."""
    return aot_autograd(
        fw_compiler=_Kernels.compiled,
        bw_compiler=_Kernels.compiled,
        decompositions=select_decomp_table,
        partition_fn=_partition,
    )


def _partition(graph: fx.GraphModule, inputs: Any, **more: Any) -> Any:
    joint_graph_passes(graph)
    return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **more)


def _decomposed_rms_norm(
    x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    normed: Tensor = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)[0]
    return normed


class _Kernels(fx.Interpreter):
    """Runs a graph of a compiled block; only what a kernel writes to memory has bytes.

    Those are the results of products, attention and other operations that Inductor does not fuse,
    what these read, and what the graph returns.
    """

    storages: StorageTracker

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._written = _written(graph.graph)

    @classmethod
    def compiled(cls, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the function of a graph: it frees its list of arguments as it goes."""
        kernels = cls(graph)

        def run(arguments: list[Any]) -> Any:
            output = kernels.boxed_run(arguments)
            kernels.env.clear()  # the interpreter would keep what nothing reads
            return output

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def run_node(self, n: fx.Node) -> Any:
        """Run one operation."""
        if n.op != "call_function" or n in self._written:
            return super().run_node(n)
        with self.storages.paused():
            return super().run_node(n)


def _written(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes of a graph whose results are in memory."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "output" or (node.op == "call_function" and not _is_fused(node)):
            found |= {_base(each) for each in node.all_input_nodes}
            found.add(node)
    return found


def _is_fused(node: fx.Node) -> bool:
    name = str(node.target)
    return node.op == "call_function" and not any(part in name for part in _NOT_FUSED)


def _base(node: fx.Node) -> fx.Node:
    """Return the node of whose memory a node is a view, or itself."""
    while node.target is operator.getitem or _is_view(node.target):
        node = node.all_input_nodes[0]
    return node


def _is_view(target: Any) -> bool:
    is_operation = isinstance(target, torch._ops.OpOverload)
    return is_operation and (target.is_view or "_unsafe_view" in str(target))
