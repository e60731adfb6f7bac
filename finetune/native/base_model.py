"""The frozen Flux that a LoRA is learned beside: loaded from a folder, and held in 8 bits."""

import contextlib
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel
from torch import nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_transformer(folder: Path, dtype: torch.dtype) -> FluxTransformer2DModel:
    """The transformer of a model folder, frozen, in host memory."""
    transformer = FluxTransformer2DModel.from_pretrained(
        folder / "transformer", dtype=dtype, local_files_only=True
    )
    return transformer.requires_grad_(False).eval()


def place(transformer: FluxTransformer2DModel, device: torch.device, *, quantise: str) -> None:
    """Move it to the device; with `int8` or `float8` its blocks' matrices are held in 8 bits.

    They have a scale for each row, and go one by one: a GPU never holds all of them whole.
    """
    if quantise == "none":
        transformer.to(device)
        return
    # Imported where wanted: it costs seconds that most runs need not spend.
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    how = {"int8": Int8WeightOnlyConfig, "float8": Float8WeightOnlyConfig}[quantise]()
    quantize_(transformer, how, filter_fn=_is_of_a_block, device=device)


def _is_of_a_block(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear) and "transformer_blocks." in name


def arithmetic(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """The arithmetic of a pass through the model."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[precision])
