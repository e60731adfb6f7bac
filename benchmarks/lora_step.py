"""The memory, FLOPs and memory traffic of one LoRA step of a FLUX.1 of true size, without a GPU.

    python -m benchmarks.lora_step [--size 512] [--images 4] [--assistant 64]

Runs the native engine's own code on tensors without data: loss, backward pass, clipping, AdamW. The
memory is that of every live storage. The time is a roofline: an operation takes the longer of its
products at a share of the GPU's peak and of its bytes at a share of the bandwidth, one after the
other, nothing fused. None of it was timed on a GPU.

`docs/measurements/lora-step.md` has the results.
"""

import argparse
import contextlib
import gc
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from configs.schema.finetune import Lora
from finetune.native.lora import (
    ASSISTANT,
    LEARNED,
    LoraWeights,
    activate,
    adapter_config,
    add_learned,
)
from finetune.native.loss import LatentBatch, losses
from train.engine.ema import EMA
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients
from train.forecast.dry_run import StorageTracker
from train.forecast.fake_gpu import gpu_autocast

aten = torch.ops.aten
GIB = 2**30
CPU = torch.device("cpu")
# The rates that an operation is taken to reach: FLOP/s of products, bytes per second. Assumed.
RATES = {"a100-40gb": (0.62 * 312e12, 0.80 * 1.555e12), "a40": (0.50 * 149.7e12, 0.82 * 0.696e12)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A step to count; `blocks` and `single_blocks` are those of a FLUX.1 by default."""

    size: int = 512
    images: int = 1
    checkpointing: bool = True
    rank: int = 16
    assistant: int = 0
    variant: str = "schnell"
    text_tokens: int = 256
    blocks: int = 19
    single_blocks: int = 38


@dataclass(kw_only=True)
class Operations:
    """Number, bytes and FLOPs of the operations of one name, and their seconds by GPU."""

    number: int = 0
    bytes: float = 0
    flops: float = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RATES, 0.0))


@dataclass(frozen=True, kw_only=True)
class StepCount:
    """One step: bytes of memory by kind and at the `peak`, and its operations by name."""

    base: int
    lora: int
    optimizer: int
    average: int
    activations: int
    peak: int
    operations: dict[str, Operations]

    def to_json(self) -> dict[str, Any]:
        """Return GiB of memory, GB and TFLOP of the operations, and seconds by GPU."""
        memory = {k: v / GIB for k, v in vars(self).items() if k != "operations"}
        parts = self.operations.values()
        seconds = {name: sum(part.seconds[name] for part in parts) for name in RATES}
        moved, flops = sum(part.bytes for part in parts), sum(part.flops for part in parts)
        return {"gib": memory, "gb": moved / 1e9, "tflop": flops / 1e12, "seconds": seconds}


def main(arguments: list[str]) -> int:
    """Count one step and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in vars(Setting()).items():
        kind = json.loads if isinstance(value, bool) else type(value)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value)
    parser.add_argument("--operations", type=int, default=0, help="print the N longest")
    options = vars(parser.parse_args(arguments))
    longest = options.pop("operations")
    warnings.simplefilter("ignore")
    found = count(Setting(**options))
    print(json.dumps({"setting": options, **found.to_json()}))
    by_time = sorted(found.operations.items(), key=lambda one: -one[1].seconds["a100-40gb"])
    for name, part in by_time[:longest]:
        seconds = "  ".join(f"{part.seconds[gpu]:.3f}" for gpu in RATES)
        print(f"{part.bytes / 1e9:8.1f} GB {part.flops / 1e12:7.1f} TF  {seconds} s "
              f"{part.number:6d} {name}")  # fmt: skip
    return 0


def count(setting: Setting) -> StepCount:
    """Return the count of the second step of a run."""
    with _fake_gpu(), StorageTracker() as storages:
        transformer = _transformer(setting)
        base = storages.held
        weights = _with_lora(transformer, setting)
        lora = storages.held - base
        ema = EMA(weights, decay=0.99, warmup=True)
        average = storages.held - base - lora
        optimizer = torch.optim.AdamW(weights.parameters(), fused=True)
        batch = _batch(setting)
        before = storages.held
        for parameter in weights.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        states = storages.held - before
        storages.peak, held = storages.held, storages.held
        with _OperationCounter() as counter:
            per_image = losses(transformer, batch)
            activations = storages.held - held
            per_image.sum().backward()
            scale_gradients(weights, clip_factor(gradient_norm(weights), 1.0))
            optimizer.step()
            ema.update(1)
    return StepCount(
        base=base,
        lora=lora,
        optimizer=states,
        average=average,
        activations=activations,
        peak=storages.peak,
        operations=dict(counter.operations),
    )


def _transformer(setting: Setting) -> FluxTransformer2DModel:
    torch.set_default_dtype(torch.bfloat16)
    transformer = FluxTransformer2DModel(
        num_layers=setting.blocks,
        num_single_layers=setting.single_blocks,
        guidance_embeds=setting.variant == "dev",
    )
    torch.set_default_dtype(torch.float32)
    transformer.requires_grad_(False).eval()
    gc.collect()
    if setting.checkpointing:
        transformer.enable_gradient_checkpointing()
    return transformer


def _with_lora(transformer: FluxTransformer2DModel, setting: Setting) -> LoraWeights:
    linear = [name for name, part in transformer.named_modules() if isinstance(part, nn.Linear)]
    weights = add_learned(transformer, Lora(rank=setting.rank), seed=0)
    if setting.assistant:
        assistant = Lora(rank=setting.assistant)
        layers = [name for name in linear if assistant.selects(name)]
        transformer.add_adapter(adapter_config(assistant, layers), adapter_name=ASSISTANT)
        for name, parameter in transformer.named_parameters():
            if f".{ASSISTANT}." in name:
                parameter.data = parameter.data.to(torch.bfloat16)
        activate(transformer, LEARNED, ASSISTANT)
    return weights


def _batch(setting: Setting) -> LatentBatch:
    shape = (setting.images, 16, setting.size // 8, setting.size // 8)
    tokens = setting.text_tokens
    return LatentBatch(
        latent=torch.zeros(shape),
        noise=torch.zeros(shape),
        t=torch.zeros(setting.images),
        prompt=torch.zeros(setting.images, tokens, 4096, dtype=torch.bfloat16),
        pooled=torch.zeros(setting.images, 768, dtype=torch.bfloat16),
    )


class _OperationCounter(TorchDispatchMode):
    """Counts bytes and FLOPs of operations; views and allocations are free.

    `empty_like` stands for the fused RMS norm (`train/forecast/fake_gpu.py`).
    """

    _FREE = (
        "empty",
        "new_empty",
        "detach",
        "device",
        "_unsafe_view",
        "lift_fresh",
        "empty_strided",
    )

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, Operations] = defaultdict(Operations)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not (func.is_view or name in self._FREE):
            leaves = tree_leaves((args, output))
            moved = sum(_size(each) for each in leaves if isinstance(each, Tensor))
            flops = _flops(func, args, kwargs or {}, output)
            part = self.operations[name]
            part.number += 1
            part.bytes += moved
            part.flops += flops
            for gpu, (rate, bandwidth) in RATES.items():
                part.seconds[gpu] += max(flops / rate, moved / bandwidth)
        return output


def _flops(func: Any, args: Any, kwargs: dict[str, Any], output: Any) -> float:
    name = func.overloadpacket.__name__
    if name.startswith("_scaled_dot_product_flash_attention_for_cpu"):
        is_backward = name.endswith("backward")
        q, k = args[1:3] if is_backward else args[:2]
        batch, heads, tokens, width = q.shape
        # The backward pass recomputes the scores: five products for two.
        return 4 * batch * heads * tokens * k.shape[2] * width * (2.5 if is_backward else 1)
    known = flop_registry.get(func.overloadpacket)
    return float(known(*args, **kwargs, out_val=output)) if known else 0.0


def _size(tensor: Tensor) -> int:
    """Return the bytes of the distinct elements of a tensor, which may be expanded."""
    elements = tensor.itemsize
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements


def _attention(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Tensor:
    """Return what flash attention returns on a GPU, and save what it saves."""
    same = [each.to(torch.bfloat16) for each in (query, key, value)]
    output: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(*same)[0]
    return output


@contextlib.contextmanager
def _fake_gpu() -> Iterator[None]:
    """Imitate a GPU on fake tensors; weights need no values."""
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        gpu_autocast(),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention),
        mock.patch.object(LoraWeights, "initialise"),
        # torch cannot move the fake parameters of a module, and peft converts those of adapters.
        mock.patch("torch.nn.Module.to", lambda module, *args, **kwargs: module),
        mock.patch("peft.tuners.tuners_utils.BaseTunerLayer._move_adapter_to_device_of_base_layer"),
    ):
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
