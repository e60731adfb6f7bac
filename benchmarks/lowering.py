"""Lower a graph by Inductor for an H100 that is not there, and count the bytes of each kernel.

A kernel counts each element that it reads or writes once, however often it loads it; loads at
another offset count as other elements. So the counts are those of a perfect cache.
"""

import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._inductor.debug import DebugContext
from torch._inductor.dependencies import MemoryDep
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import NopKernel
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode

_H100 = {
    "major": 9, "multi_processor_count": 132, "regs_per_multiprocessor": 65536, "warp_size": 32,
    "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A fused kernel: bytes per token and channel, and the operations in it."""

    bytes: float
    operations: str


def kernels(graph: fx.GraphModule, unit: int, *, backward: bool) -> list[Kernel]:
    """Return the fused kernels that Inductor makes of a graph on an H100."""
    inputs, mode = _on_cuda(graph)
    with _pretended_h100(), V.set_fake_mode(mode), DebugContext():
        view_to_reshape(graph)
        post_grad_passes(graph, False)
        lowering = GraphLowering(
            graph, example_inputs=inputs, is_inference=False, is_backward=backward
        )
        with V.set_graph_handler(lowering):
            lowering.run(*inputs)
            lowering.codegen()
            return [
                Kernel(bytes=_bytes_moved(lowering, node) / unit, operations=_operations(node))
                for node in lowering.scheduler.nodes
                if not (node.is_extern() or isinstance(node.node, NopKernel))
            ]


def _on_cuda(graph: fx.GraphModule) -> tuple[list[Any], FakeTensorMode]:
    """Move a graph traced on fake CPU tensors to a CUDA device; return fake inputs."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def moved(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(moved, value))
        if not isinstance(value, Tensor):
            return value
        shape, stride = value.shape, value.stride()
        with mode:
            return torch.empty_strided(shape, stride, dtype=value.dtype, device="cuda:0")

    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda:0")}
        if "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
    return [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"], mode


@contextlib.contextmanager
def _pretended_h100() -> Iterator[None]:
    """Make Inductor lower for an H100 that is not there; its kernels are never loaded."""
    seen = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", minor=0, total_memory=85 * 10**9, gcnArchName="",
        L2_cache_size=50 * 2**20, shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, **_H100,
    )  # fmt: skip
    known = DeviceProperties(type="cuda", index=0, cc=90, **_H100)
    worker = "torch._dynamo.device_interface.CudaInterface.Worker"
    answers: dict[str, Any] = {
        "torch.cuda.is_available": True,
        "torch.cuda.current_device": 0,
        "torch.cuda.device_count": 1,
        "torch.cuda.get_device_properties": seen,
        "torch.cuda.get_device_capability": (9, 0),
        "torch.utils._triton.has_triton": True,
        "torch.utils._triton.triton_hash_with_backend": "",
        "torch._inductor.scheduler.has_triton": True,
        "torch._inductor.runtime.hints.DeviceProperties.create": known,
        f"{worker}.get_device_properties": seen,
        f"{worker}.current_device": 0,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch(name, lambda *_, answer=answer, **__: answer))
        # The defaults, which libraries may have changed: nothing is tuned, as no kernel can run.
        plain = {"max_autotune": False, "coordinate_descent_tuning": False}
        settings = {"fx_graph_cache": False, "compile_threads": 1} | plain
        stack.enter_context(torch._inductor.config.patch(settings))
        yield


def _bytes_moved(lowering: GraphLowering, node: Any) -> int:
    """Return the bytes that a kernel reads and writes, each element once.

    Inductor's own count takes a slice, such as the queries in the qkv output, for all of it.
    """

    def size(name: str, elements: Any) -> int:
        return int(elements) * lowering.get_dtype(name).itemsize

    def whole(name: str) -> int:
        return size(name, lowering.get_numel(name))

    def touched(dep: Any) -> int:
        known = isinstance(dep, MemoryDep) and not dep.is_indirect()
        return min(size(dep.name, dep.get_numel()), whole(dep.name)) if known else whole(dep.name)

    made = {name for each in node.get_nodes() for name in each.get_buffer_names()}
    dropped = lowering.removed_buffers | lowering.inplaced_to_remove
    reads: dict[str, dict[str, int]] = {}
    writes: dict[str, int] = {}
    for each in node.get_nodes():
        for dep in each.read_writes.reads:
            if dep.name not in made:
                place = str(dep.index) if isinstance(dep, MemoryDep) else ""
                reads.setdefault(dep.name, {})[place] = touched(dep)
        for dep in each.read_writes.writes:
            if dep.name not in dropped:
                writes[dep.name] = max(writes.get(dep.name, 0), touched(dep))
    read = sum(min(sum(parts.values()), whole(name)) for name, parts in reads.items())
    return read + sum(writes.values())


def _operations(node: Any) -> str:
    nodes = [each.node for each in node.get_nodes() if each.node is not None]
    return " ".join(sorted({origin.name for each in nodes for origin in each.get_origins()}))
