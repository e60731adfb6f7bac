"""The frozen Flux transformer: loading it, and weights of 8 bits to draw images with."""

from pathlib import Path

import diffusers
import torch
import transformers
from diffusers import FluxTransformer2DModel
from torch import nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def hide_progress_bars() -> None:
    """Turn off the loading bars of diffusers and transformers: each redraw is a line in a log."""
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def load_transformer(
    folder: Path, dtype: torch.dtype, *, device: torch.device, quantise: str = "none"
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


def _is_block_matrix(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Linear) and "transformer_blocks." in name
