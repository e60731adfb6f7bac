"""The VAE between images and latents, loaded from a folder that diffusers saved.

Latents are normalised per channel, `(z - shift) * scale` of the VAE's own z, as in the pipelines
of diffusers, so that their standard deviation is near 1.
"""

import json
import logging
import re
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.errors import DataError
from configs.files import read_bytes
from configs.schema import Pretrain
from train.data.latents.store import VaeFacts, checksum, read_index

_log = logging.getLogger(__name__)
_CLASS = "AutoencoderKL"
# In one file or several, but no variant such as fp16: diffusers loads only these.
_WEIGHTS = re.compile(r"diffusion_pytorch_model(-\d+-of-\d+)?\.safetensors")
# Latents decoded at once: a decoder's activations are large, and training needs the memory.
_DECODE_BATCH = 4


class Vae:
    """A frozen VAE on a device. `scale` and `shift` are per latent channel, in float64."""

    def __init__(self, folder: Path, *, device: torch.device, precision: str = "fp32") -> None:
        facts = vae_facts(folder)
        self.device, self._precision = device, precision
        self._network = _load(folder, facts).to(device).eval().requires_grad_(False)
        # The loaded config has the defaults of keys that are younger than the published file.
        config = {k: v for k, v in self._network.config.items() if not k.startswith("_")}
        self.facts = facts.model_copy(update={"config": json.loads(json.dumps(config))})
        self.scale, self.shift = normalisation(self.facts, folder=folder)
        self.image_channels = int(self.facts.config["in_channels"])

    def to(self, device: torch.device) -> "Vae":
        """Move the weights."""
        self._network.to(device)
        self.device = device
        return self

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std of the normalised latents of images `[n, 3, H, W]` in -1..1.

        Both are `[n, C, h, w]` float32 on the VAE's device.
        """
        with deterministic_cudnn(tf32=self._precision == "tf32"), self._autocast():
            posterior = self._network.encode(images.to(self.device)).latent_dist
        scale, shift = self._factors()
        return (posterior.mode().float() - shift) * scale, posterior.std.float() * scale

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return images `[n, 3, H, W]` float32 in -1..1, on the device of the latents."""
        scale, shift = self._factors()
        images = []
        for batch in latents.split(_DECODE_BATCH):
            z = batch.float().to(self.device) / scale + shift
            with self._autocast():
                decoded = self._network.decode(z).sample
            images.append(decoded.float().clamp(-1, 1).to(latents.device))
        return torch.cat(images)

    def _factors(self) -> tuple[Tensor, Tensor]:
        both = torch.tensor([self.scale, self.shift], dtype=torch.float32, device=self.device)
        scale, shift = both[:, None, :, None, None]
        return scale, shift

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._precision == "bf16")


def deterministic_cudnn(*, tf32: bool = False) -> AbstractContextManager[None]:
    """Disable the choice of kernels by timing, and TF32 unless `tf32`, for reproducible outputs."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32
    )


def vae_facts(folder: Path) -> VaeFacts:
    """Return class, config and checksum of the VAE in `folder`. Raise `DataError` if none."""
    file = folder / "config.json"
    try:
        config = dict(json.loads(read_bytes(file)))
    except (OSError, ValueError, TypeError):
        raise DataError(
            f"{file}: no config of a VAE there; name the folder that save_pretrained of an "
            f"{_CLASS} wrote (of a pipeline, its sub-folder vae)"
        ) from None
    name = config.get("_class_name")
    if name != _CLASS:
        raise DataError(f"{file}: _class_name is {name}; expected {_CLASS}")
    weights = sorted(file for file in folder.iterdir() if _WEIGHTS.fullmatch(file.name))
    if not weights:
        raise DataError(
            f"{folder}: no diffusion_pytorch_model.safetensors; pickled weights are not read: "
            "if you trust them, load them once and call save_pretrained(FOLDER)"
        )
    return VaeFacts(
        name=name, path=str(folder.absolute()), sha256=checksum(file, *weights), config=config
    )


def normalisation(facts: VaeFacts, *, folder: Path) -> tuple[list[float], list[float]]:
    """Return scale and shift per latent channel from the VAE's config."""
    config = facts.config
    channels = int(config["latent_channels"])
    mean, std = config.get("latents_mean"), config.get("latents_std")
    factor = float(config["scaling_factor"])
    if mean is None or std is None:
        return [factor] * channels, [float(config.get("shift_factor") or 0.0)] * channels
    if not len(mean) == len(std) == channels:
        raise DataError(
            f"{folder / 'config.json'}: latents_mean has {len(mean)} and latents_std {len(std)} "
            f"numbers, latent_channels is {channels}"
        )
    return [factor / float(s) for s in std], [float(m) for m in mean]


def _load(folder: Path, facts: VaeFacts) -> Any:
    # A late import: diffusers takes seconds to import.
    import diffusers

    try:
        return getattr(diffusers, facts.name).from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{folder}: the VAE cannot be loaded: {error}") from None


def check_vae(folder: Path, expected: VaeFacts) -> None:
    """Raise `DataError` unless the folder holds the VAE that made the latents."""
    found = vae_facts(folder)
    if found.sha256 != expected.sha256:
        raise DataError(
            f"{folder}: another VAE ({found.name}, checksum {found.sha256[:12]}) than the one "
            f"that made the latents ({expected.name}, {expected.sha256[:12]}); set data.vae to a "
            f"copy of {expected.path} as it was"
        )


@lru_cache(maxsize=1)
def _decoder(folder: Path) -> Vae:
    return Vae(folder, device=torch.device("cpu"))


def open_decoder(config: Pretrain) -> Vae | None:
    """Return the VAE, on the CPU, that decodes a run's samples; None if it trains on pixels.

    Raise `DataError` if it is missing, or is not the one that made the latents.
    """
    if config.data.source != "latents":
        return None
    assert config.data.path is not None
    expected = read_index(Path(config.data.path)).vae
    folder = Path(config.data.vae or expected.path)
    check_vae(folder, expected)
    return _decoder(folder)


def decode_samples(images: Tensor, config: Pretrain, *, device: torch.device) -> Tensor:
    """Return the samples `[n, C, H, W]` of a run as images; latents are decoded.

    The decoder moves to `device` only for this call, or stays on the CPU if memory is short. If
    the VAE is missing, log a warning and return the latents: a picture is not worth a run.
    """
    try:
        vae = open_decoder(config)
    except DataError as error:
        _log.warning("samples are shown as latents: %s", error)
        return images
    if vae is None:
        return images
    try:
        return decode_on(vae, images, device=device)
    finally:
        vae.to(torch.device("cpu"))


def decode_on(vae: Vae, latents: Tensor, *, device: torch.device) -> Tensor:
    """Move the VAE to `device`, or to the CPU if memory is short, and return decoded latents."""
    try:
        return vae.to(device).decode(latents)
    except torch.OutOfMemoryError:
        return vae.to(torch.device("cpu")).decode(latents)
