"""Encode images with the VAE, and captions and prompts with CLIP and T5."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, FluxPipeline
from PIL import Image, ImageOps
from torch import Tensor

from configs.checks.captions import open_image


def load_vae(folder: Path, device: torch.device, dtype: torch.dtype) -> AutoencoderKL:
    """Load the VAE of a model folder, frozen."""
    vae = AutoencoderKL.from_pretrained(folder / "vae", dtype=dtype, local_files_only=True)
    return vae.requires_grad_(False).eval().to(device)


def load_text_encoders(folder: Path, device: torch.device, dtype: torch.dtype) -> FluxPipeline:
    """Load CLIP, T5 and their tokenizers as a pipeline without transformer and VAE."""
    pipeline = FluxPipeline.from_pretrained(
        folder, transformer=None, vae=None, dtype=dtype, local_files_only=True
    )
    return pipeline.to(device)


@torch.no_grad()
def embed(pipeline: FluxPipeline, text: str) -> dict[str, Tensor]:
    """Return `prompt` `[tokens, width]` of T5 and `pooled` `[width]` of CLIP, on the CPU.

    There are as many tokens as the tokenizer of T5 takes, 512 for FLUX.1.
    """
    tokens = pipeline.tokenizer_2.model_max_length
    prompt, pooled, _ = pipeline.encode_prompt(
        prompt=text, prompt_2=None, max_sequence_length=tokens
    )
    return {"prompt": prompt[0].cpu().contiguous(), "pooled": pooled[0].cpu().contiguous()}


@torch.no_grad()
def encode(vae: AutoencoderKL, image: Tensor) -> Tensor:
    """Return the normalised latent `[16, H/8, W/8]` (posterior mean) of an image `[3, H, W]`."""
    latent = vae.encode(image[None].to(vae.device, vae.dtype)).latent_dist.mode()
    settings: Any = vae.config
    normalised = (latent - settings.shift_factor) * settings.scaling_factor
    return normalised[0].float().cpu().contiguous()


def pixels(image: Image.Image) -> Tensor:
    """Return an image as `[3, H, W]` in -1..1."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 127.5 - 1


def fitted_size(width: int, height: int, *, resolution: int, bucket: int) -> tuple[int, int]:
    """Return the width and height to train an image at: its shape, with the area of `resolution`.

    Both are multiples of `bucket`. Images are never enlarged, so a small image keeps about
    its own area, as in ai-toolkit.
    """
    scale = min(1.0, resolution / math.sqrt(width * height))
    across = max(bucket, round(width * scale / bucket) * bucket)
    down = max(bucket, round(height * scale / bucket) * bucket)
    # Rounding must not exceed the area: memory is planned by the resolution.
    while across * down > resolution**2 and max(across, down) > bucket:
        across, down = (across - bucket, down) if across >= down else (across, down - bucket)
    return across, down


def fitted_image(file: Path, *, resolution: int, bucket: int) -> Image.Image:
    """Return an image as training sees it: turned by its EXIF tag, scaled, its centre cropped."""
    image = ImageOps.exif_transpose(open_image(file)).convert("RGB")
    size = fitted_size(image.width, image.height, resolution=resolution, bucket=bucket)
    return ImageOps.fit(image, size, Image.Resampling.LANCZOS)
