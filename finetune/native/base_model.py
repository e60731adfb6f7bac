"""Loading the frozen Flux transformer."""

from pathlib import Path

import diffusers
import torch
import transformers
from diffusers import FluxTransformer2DModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def hide_progress_bars() -> None:
    """Turn off the loading bars of diffusers and transformers: each redraw is a line in a log."""
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


def load_transformer(
    folder: Path, dtype: torch.dtype, *, device: torch.device
) -> FluxTransformer2DModel:
    """Load the frozen transformer of a folder to `device`, without a copy in host memory."""
    transformer = FluxTransformer2DModel.from_pretrained(
        folder / "transformer", dtype=dtype, device_map={"": device}, local_files_only=True
    )
    return transformer.requires_grad_(False).eval()
