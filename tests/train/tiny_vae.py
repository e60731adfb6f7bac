"""Small VAEs with random weights, saved in the format of diffusers, and images for them.

    python -m tests.train.tiny_vae FOLDER

The scaling factors are measured, so that latents are normalised.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from PIL import Image
from transformers import Dinov2Config, Dinov2Model

SIZE = 16


def save_kl(folder: Path, *, seed: int = 0, scale: float = 1.0) -> None:
    """Save an AutoencoderKL of 16 x 16 images and 4 x 8 x 8 latents, scaled by `scale`."""
    torch.manual_seed(seed)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
    )
    with torch.no_grad():
        latent = vae.encode(random_images()).latent_dist.sample(torch.manual_seed(0))
    vae.register_to_config(
        scaling_factor=scale / latent.std().item(), shift_factor=latent.mean().item()
    )
    vae.save_pretrained(folder)


def save_dino(folder: Path) -> None:
    """Save a Dinov2Model with random weights, features of 8 channels, and patches of 14 pixels."""
    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    Dinov2Model(config).save_pretrained(folder)


def random_images(count: int = 16) -> torch.Tensor:
    """Return images like those of `save_images`, `[n, 3, 16, 16]` in -1..1."""
    return torch.from_numpy(_pixels(count)).permute(0, 3, 1, 2) / 127.5 - 1


def save_images(folder: Path, *, classes: int = 3, per_class: int = 5) -> None:
    """Save smooth random images as PNG files, a sub-folder per class."""
    pixels = _pixels(classes * per_class).reshape(classes, per_class, SIZE, SIZE, 3)
    for label in range(classes):
        inner = folder / f"class-{label}"
        inner.mkdir(parents=True)
        for number, image in enumerate(pixels[label]):
            Image.fromarray(image).save(inner / f"{number:03d}.png")


def _pixels(count: int) -> np.ndarray:
    coarse = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return coarse.repeat(SIZE // 4, axis=1).repeat(SIZE // 4, axis=2)


def change_config(folder: Path, **changes: object) -> None:
    """Change keys of a saved VAE's config."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


if __name__ == "__main__":
    save_kl(Path(sys.argv[1]))
