"""The memory traffic of a DiT block compiled for an H100, counted without a GPU.

    python -m benchmarks.block_traffic [--row ours ...] [--kernels] [--json]

Traces forward and backward of one block as CUDA's autocast computes them in bf16, partitions the
graph as torch.compile does, and lets Inductor lower both parts for a pretended H100. The unit is
bytes per token and channel of the residual stream, at DiT-XL/2's width and a micro batch of 128.
Matrix products and attention are left out; casts of weights are included. "eager" counts what each
operation reads and writes instead.

A kernel counts each element that it reads or writes once, however often it loads it; loads at
another offset count as other elements. So the counts are those of a perfect cache, and none is a
measurement of time. docs/measurements/block-traffic.md has the results.
"""

import argparse
import contextlib
import json
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from functorch.compile import aot_function, make_boxed_func
from torch import Tensor, fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.dependencies import MemoryDep
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import NopKernel
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.peer import diffusers_dit
from configs.load import resolve
from configs.schema import Pretrain
from train.forecast.fake_gpu import gpu_autocast
from train.model.attention import Attention, attend, rotate
from train.model.build import build_network

aten = torch.ops.aten
_H100 = {
    "major": 9, "multi_processor_count": 132, "regs_per_multiprocessor": 65536, "warp_size": 32,
    "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
}  # fmt: skip


# The rows of the table, by the changes of the config's model.
ROWS: dict[str, dict[str, str | bool]] = {
    "ours": {},
    "swiglu": {"mlp": "swiglu"},
    "sincos, no qk_norm": {"positions": "sincos", "qk_norm": False},
    "heads before norm": {},
    "diffusers": {},
}


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A fused kernel: bytes per token and channel, and the operations in it."""

    bytes: float
    operations: str


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The kernels of a compiled block's two passes, and the bytes of an eager block."""

    forward: list[Kernel]
    backward: list[Kernel]
    eager: float

    def to_json(self) -> dict[str, float]:
        """Return bytes per token and channel, and the number of kernels."""
        forward, backward = (sum(k.bytes for k in part) for part in (self.forward, self.backward))
        both = {"forward": forward, "backward": backward, "sum": forward + backward}
        return {**both, "kernels": len(self.forward + self.backward), "eager": self.eager}


def main(arguments: list[str]) -> int:
    """Count and print a table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--row", choices=ROWS, action="append", help="only this row")
    options.add_argument("--kernels", action="store_true", help="print each kernel")
    options.add_argument("--json", action="store_true", help="print JSON")
    chosen = options.parse_args(arguments)
    warnings.simplefilter("ignore")  # the compiler warns about features that the machine lacks
    found = {name: traffic(name) for name in chosen.row or ROWS}
    if chosen.json:
        print(json.dumps({name: each.to_json() for name, each in found.items()}, indent=1))
        return 0
    print(" " * 20, "forward  backward  sum    kernels  eager   bytes per token and channel")
    for name, each in found.items():
        print(f"{name:20}", "".join(f"{value:<9.4g}" for value in each.to_json().values()))
        for kernel in each.forward + each.backward if chosen.kernels else ():
            print(f"  {kernel.bytes:6.2f}  {kernel.operations}")
    return 0


def traffic(name: str, *, images: int = 128) -> Traffic:
    """Return the traffic of the block of a row, in bf16 and at the size of DiT-XL/2."""
    model = {"width": 1152, "heads": 16, "depth": 1, "patch": 2} | ROWS[name]
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 1000}
    config = resolve({"model": model, "data": data}, source="benchmarks.block_traffic")
    assert isinstance(config, Pretrain)
    tokens = (config.data.size // config.model.patch) ** 2
    unit = images * tokens * config.model.width
    attention = _heads_first if name == "heads before norm" else Attention.forward
    with mock.patch.object(Attention, "forward", attention):
        forward, backward = _graphs(config, name, images, tokens)
        eager = _eager_bytes(config, name, images, tokens)
    return Traffic(
        forward=_kernels(forward, unit, backward=False),
        backward=_kernels(backward, unit, backward=True),
        eager=eager / unit,
    )


def _call(config: Pretrain, name: str, images: int, tokens: int) -> tuple[Any, tuple[Any, ...]]:
    """Return a function that runs the block on weights and inputs, and these."""
    network: Any = diffusers_dit(config) if name == "diffusers" else build_network(config)
    block, width = network.blocks[0], config.model.width
    x = torch.randn(images, tokens, width, dtype=torch.bfloat16, requires_grad=True)
    if name == "diffusers":
        more = {"timestep": torch.rand(images), "class_labels": torch.zeros(images).long()}
    else:
        condition = torch.randn(images, width, requires_grad=True)
        more = {"condition": condition, "rope": network.rope}

    def run(weights: dict[str, Tensor], x: Tensor, more: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            output: Tensor = torch.func.functional_call(block, weights, (x,), more)
            return output

    return run, (dict(block.named_parameters()), x, more)


def _graphs(
    config: Pretrain, name: str, images: int, tokens: int
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Return forward and backward graph of a block, partitioned as torch.compile does."""
    graphs = []

    def keep(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def partition(graph: fx.GraphModule, inputs: Any, **more: Any) -> Any:
        joint_graph_passes(graph)
        return min_cut_rematerialization_partition(graph, inputs, **more)

    with _fake_gpu(), mock.patch("torch.nn.functional.rms_norm", _rms_norm):
        run, arguments = _call(config, name, images, tokens)
        compiled = aot_function(
            run, keep, keep, partition_fn=partition, decompositions=select_decomp_table()
        )
        compiled(*arguments).sum().backward()
    return graphs[0], graphs[1]


def _eager_bytes(config: Pretrain, name: str, images: int, tokens: int) -> int:
    """Return the bytes that the operations of forward and backward read and write."""
    counter = _OperationBytes()
    with _fake_gpu():
        run, arguments = _call(config, name, images, tokens)
        gradient = torch.empty_like(arguments[1])
        with counter:
            run(*arguments).backward(gradient)
    return counter.bytes


class _OperationBytes(TorchDispatchMode):
    """Counts the bytes that operations read and write, without views, products and attention.

    `empty_like` stands for the fused RMS norm (`train/forecast/fake_gpu.py`).
    """

    _FREE = ("mm", "addmm", "bmm", "empty", "new_empty", "detach", "device", "_unsafe_view")
    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not (func.is_view or name in self._FREE or "attention" in name):
            leaves = tree_leaves((args, output))
            self.bytes += sum(_size(each) for each in leaves if isinstance(each, Tensor))
        return output


def _size(tensor: Tensor) -> int:
    """Return the bytes of the distinct elements of a tensor, which may be expanded."""
    elements = tensor.itemsize
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements


def _rms_norm(x: Tensor, shape: torch.Size, weight: Tensor, eps: float) -> Tensor:
    output: Tensor = aten._fused_rms_norm(x.float(), shape, weight.float(), eps)[0]
    return output


def _heads_first(
    self: Attention, x: Tensor, rope: Tensor, values: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return what `Attention.forward` returns, with heads before tokens from the start."""
    q, k, v = self.qkv(x).unflatten(2, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
    q, k = rotate(self.q_norm(q), rope), rotate(self.k_norm(k), rope)
    output: Tensor = self.out(attend(q, k, v).transpose(1, 2).flatten(2))
    return output, v


@contextlib.contextmanager
def _fake_gpu() -> Iterator[None]:
    """Imitate an H100 on fake tensors: its autocast, and cuDNN's attention, which torch chooses."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        q, k, v = (each.to(torch.bfloat16) for each in (q, k, v))
        output: Tensor = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True)[0]
        return output

    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        gpu_autocast(),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", attention),
        mock.patch("train.model.attention._MATERIALIZE_TOKENS", 0),
    ):
        yield


def _kernels(graph: fx.GraphModule, unit: int, *, backward: bool) -> list[Kernel]:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
