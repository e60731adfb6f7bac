"""The frozen Flux transformer that a LoRA is trained beside: loading, and weights of 8 bits."""

from pathlib import Path
from typing import Any

import diffusers
import torch
import torch.nn.functional as F
import transformers
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def hide_progress_bars() -> None:
    """Turn off the loading bars of diffusers and transformers: each redraw is a line in a log."""
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def load_transformer(
    folder: Path, dtype: torch.dtype, *, device: torch.device, quantise: str
) -> FluxTransformer2DModel:
    """Load the frozen transformer of a folder to `device`, or to the host if it is quantised."""
    place = device if quantise == "none" else torch.device("cpu")
    transformer = FluxTransformer2DModel.from_pretrained(
        folder / "transformer", dtype=dtype, device_map={"": place}, local_files_only=True
    )
    return transformer.requires_grad_(False).eval()


def quantise_blocks(
    transformer: FluxTransformer2DModel, device: torch.device, *, quantise: str
) -> None:
    """Unless `quantise` is `none`, move to `device` with the matrices of the blocks in 8 bits.

    `quantise` is `none`, `int8` or `float8`: weights only, with one scale per row. Matrices are
    moved one by one, so the GPU never holds all of them in full precision.
    """
    if quantise == "none":
        return
    # Imported here because it takes seconds and most runs do not need it.
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    config = {"int8": Int8WeightOnlyConfig, "float8": Float8WeightOnlyConfig}[quantise]()
    quantize_(transformer, config, filter_fn=_is_block_matrix, device=device)
    for name, module in transformer.named_modules():
        if _is_block_matrix(module, name):
            module.__class__ = EightBitLinear


def _is_block_matrix(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear) and "transformer_blocks." in name


class EightBitLinear(nn.Linear):
    """A frozen linear layer whose weight is an 8-bit tensor of torchao with a scale per row.

    It computes in the type that the weight had. torchao's own layer makes a copy of the weight in
    that type and autograd keeps it, so that an 8-bit model takes more memory than one of bf16.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` `[..., inputs]` times the weight, `[..., outputs]`, in the weight's type."""
        output: Tensor = _EightBitProduct.apply(x.to(self.weight.dtype), self.weight, self.bias)
        return output


class _EightBitProduct(torch.autograd.Function):
    """The product with a frozen 8-bit weight, which the backward pass converts again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight.qdata, weight.scale)
        return F.linear(x, _converted(weight.qdata, weight.scale, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        values, scale = ctx.saved_tensors
        return gradient @ _converted(values, scale, gradient.dtype), None, None


def _converted(values: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 8-bit `values` `[outputs, inputs]` times `scale`, rounded once to `dtype`.

    The product is computed in float32 and written in `dtype` by one kernel, which reads integers as
    they are; float8 has no such product, and is exact in bfloat16.
    """
    if values.is_floating_point():
        values = values.to(dtype)
    return torch.mul(values, scale, out=values.new_empty(values.shape, dtype=dtype))
