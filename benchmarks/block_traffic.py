"""The memory traffic of a DiT block compiled for an H100, counted without a GPU.

    python -m benchmarks.block_traffic [--row ours ...] [--kernels] [--json]

Traces forward and backward of one block as CUDA's autocast computes them in bf16, partitions the
graph as torch.compile does, and lets Inductor lower both parts for a pretended H100. The unit is
bytes per token and channel of the residual stream, at DiT-XL/2's width and a micro batch of 128.
Matrix products and attention are left out; casts of weights are included. "eager" counts what each
operation reads and writes instead.

`benchmarks/lowering.py` says what a kernel counts. None of it is a measurement of time.
docs/measurements/block-traffic.md has the results.
"""

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from functorch.compile import aot_function, make_boxed_func
from torch import Tensor, fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.lowering import Kernel, kernels
from benchmarks.peer import diffusers_dit
from configs.load import resolve
from configs.schema import Pretrain
from train.cost.fake_gpu import gpu_autocast
from train.model.attention import Attention, attend, rotate
from train.model.build import build_network

aten = torch.ops.aten
# The rows of the table, by the changes of the config's model.
ROWS: dict[str, dict[str, str | bool]] = {
    "ours": {},
    "swiglu": {"mlp": "swiglu"},
    "sincos, no qk_norm": {"positions": "sincos", "qk_norm": False},
    "heads before norm": {},
    "diffusers": {},
}


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
        forward=kernels(forward, unit, backward=False),
        backward=kernels(backward, unit, backward=True),
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

    `empty_like` stands for the fused RMS norm (`train/cost/fake_gpu.py`).
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


def _heads_first(self: Attention, x: Tensor, rope: Tensor) -> Tensor:
    """Return what `Attention.forward` returns, with heads before tokens from the start."""
    q, k, v = self.qkv(x).unflatten(2, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
    q, k = rotate(self.q_norm(q), rope), rotate(self.k_norm(k), rope)
    output: Tensor = self.out(attend(q, k, v).transpose(1, 2).flatten(2))
    return output


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
