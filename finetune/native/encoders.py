"""Encode images with the VAE, and captions and prompts with CLIP and T5, for the cache."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from diffusers import AutoencoderKL, FluxPipeline
from PIL import Image
from torch import Tensor

from configs.checks.dataset import fitted_image
from configs.schema import Finetune
from configs.schema.finetune import CaptionedImages
from finetune.native.base_model import DTYPES
from finetune.native.cache import Cache, CacheInputs, CaptionedImage, PromptText, latent_name
from runs.study_folder import study_of
from train.engine.attempt import Attempt
from train.engine.clocks import Clocks
from train.engine.metrics import log


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


def fill_cache(
    attempt: Attempt[Finetune], inputs: CacheInputs, clocks: Clocks, *, model: Path
) -> Cache:
    """Return the run's cache after encoding what it lacks, shared among ranks. Collective."""
    config, ranks = attempt.config, attempt.ranks
    settings = {
        "precision": config.train.precision,
        "resolutions": config.data.resolutions,
        "bucket": config.data.bucket,
        "model": _fingerprint(model),
    }
    study = study_of(attempt.run.path)
    cache = Cache((study or attempt.run).path / "cache", settings=settings)
    # Shared out before any is looked up: other runs of a study write to its folder meanwhile.
    texts = list(dict.fromkeys(inputs.all()))
    missing = cache.missing(texts[ranks.rank :: ranks.world])
    clocks.lap("setup")
    _encode_all(cache, missing, config, model, ranks.device)
    if missing:
        log.info("cached %d images and texts", len(missing))
    dist.barrier()
    cache.wait_for(texts)
    if ranks.device.type == "cuda":
        # The encoders are freed by now; the peak memory of training must not include them.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    clocks.lap("cache", drain=True)
    return cache


def _fingerprint(folder: Path) -> str:
    """Hash names, sizes and times of the files of the VAE and the text encoders."""
    parts = ("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
    files = sorted(file for part in parts for file in (folder / part).iterdir() if file.is_file())
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def _encode_all(
    cache: Cache, texts: Sequence[PromptText], config: Finetune, model: Path, device: torch.device
) -> None:
    if not texts:
        return
    latents = _latents(texts, model, config.data, device)
    encoders = load_text_encoders(model, device, DTYPES[config.train.precision])
    for text in texts:
        embedding = embed(encoders, text.text)
        cache.save(text, embedding | latents.get(text, {}))


def _latents(
    texts: Sequence[PromptText], model: Path, data: CaptionedImages, device: torch.device
) -> dict[PromptText, dict[str, Tensor]]:
    images = [text for text in texts if isinstance(text, CaptionedImage)]
    if not images:
        return {}
    # In float32: images are encoded once, and precision lost here cannot be recovered.
    vae = load_vae(model, device, torch.float32)
    return {text: dict(_latents_of(text, vae, data)) for text in images}


def _latents_of(
    image: CaptionedImage, vae: AutoencoderKL, data: CaptionedImages
) -> Iterator[tuple[str, Tensor]]:
    """Yield the latent of an image at each resolution by name."""
    for size in data.resolutions:
        fitted = fitted_image(image.image, resolution=size, bucket=data.bucket)
        yield latent_name(size), encode(vae, pixels(fitted))
