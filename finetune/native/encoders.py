"""What the VAE and the text encoders make of images, captions and prompts, for the cache."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, FluxPipeline
from torch import Tensor

from configs.schema import Finetune
from configs.schema.finetune import Captioned
from finetune.native.base_model import DTYPES
from finetune.native.cache import Cache, CaptionedImage, PromptText, latent_name
from finetune.native.pictures import pixels

# What each was distilled or trained with.
TEXT_TOKENS = {"schnell": 256, "dev": 512}


def load_vae(folder: Path, device: torch.device, dtype: torch.dtype) -> AutoencoderKL:
    """The VAE of a model folder."""
    vae = AutoencoderKL.from_pretrained(folder / "vae", dtype=dtype, local_files_only=True)
    return vae.requires_grad_(False).eval().to(device)


def load_text_encoders(folder: Path, device: torch.device, dtype: torch.dtype) -> FluxPipeline:
    """CLIP and T5 of a model folder with their tokenizers, in a pipeline of nothing else."""
    pipeline = FluxPipeline.from_pretrained(
        folder, transformer=None, vae=None, dtype=dtype, local_files_only=True
    )
    return pipeline.to(device)


def fingerprint(folder: Path) -> str:
    """What tells the VAE and text encoders of a folder from others: sizes and times of files."""
    parts = ("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
    files = sorted(file for part in parts for file in (folder / part).iterdir() if file.is_file())
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


@torch.no_grad()
def embed(pipeline: FluxPipeline, text: str, *, tokens: int) -> dict[str, Tensor]:
    """`prompt` `[tokens, width]` of T5 and `pooled` `[width]` of CLIP, on the CPU."""
    prompt, pooled, _ = pipeline.encode_prompt(
        prompt=text, prompt_2=None, max_sequence_length=tokens
    )
    return {"prompt": prompt[0].cpu().contiguous(), "pooled": pooled[0].cpu().contiguous()}


@torch.no_grad()
def encode(vae: AutoencoderKL, image: Tensor) -> Tensor:
    """The normalised latent `[16, H/8, W/8]` of an image `[3, H, W]`: the mean of its posterior."""
    latent = vae.encode(image[None].to(vae.device, vae.dtype)).latent_dist.mode()
    settings: Any = vae.config
    normal = (latent - settings.shift_factor) * settings.scaling_factor
    return normal[0].float().cpu().contiguous()


def fill(
    cache: Cache,
    texts: Sequence[PromptText],
    config: Finetune,
    *,
    folder: Path,
    device: torch.device,
) -> None:
    """Make what `texts` lack in the cache; the models are loaded only where something does."""
    if not texts:
        return
    latents = _latents(texts, folder, config.data, device)
    encoders = load_text_encoders(folder, device, DTYPES[config.train.precision])
    for text in texts:
        made = embed(encoders, text.text, tokens=TEXT_TOKENS[config.flux.variant])
        cache.keep(text, made | latents.get(text, {}))


def _latents(
    texts: Sequence[PromptText], folder: Path, data: Captioned, device: torch.device
) -> dict[PromptText, dict[str, Tensor]]:
    images = [text for text in texts if isinstance(text, CaptionedImage)]
    if not images:
        return {}
    # In whole precision: it is done once, and what is lost here is lost for good.
    vae = load_vae(folder, device, torch.float32)
    return {
        text: {
            latent_name(size): encode(vae, pixels(text.image, resolution=size, bucket=data.bucket))
            for size in data.resolutions
        }
        for text in images
    }
