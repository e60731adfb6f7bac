"""Small VAEs with random weights, saved in the format of diffusers, and images for them.

    python -m tests.train.tiny_vae FOLDER [kl|cosmos]

The scaling factors (mean and std for Cosmos) are measured, so that latents are normalised.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderDC, AutoencoderKL, AutoencoderKLCosmos
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


def save_cosmos(folder: Path, *, seed: int = 0) -> None:
    """Save an AutoencoderKLCosmos of 16 x 16 images and 4 x 8 x 8 latents, without a posterior."""
    torch.manual_seed(seed)
    vae = AutoencoderKLCosmos(
        latent_channels=4,
        encoder_block_out_channels=(8, 8),
        decode_block_out_channels=(8, 8),
        attention_resolutions=(),
        resolution=SIZE,
        num_layers=1,
        patch_size=2,
        spatial_compression_ratio=4,
        temporal_compression_ratio=4,
    )
    with torch.no_grad():
        latent = vae.encode(random_images()[:, :, None]).latent_dist.mode()[:, :, 0]
    # Two frames, where the real config has sixteen; an image uses the first.
    mean, std = latent.mean(dim=(0, 2, 3)), latent.std(dim=(0, 2, 3))
    vae.register_to_config(
        latents_mean=torch.stack([mean, mean + 9], 1).flatten().tolist(),
        latents_std=torch.stack([std, std * 9], 1).flatten().tolist(),
    )
    vae.save_pretrained(folder)


def save_dc(folder: Path, *, seed: int = 0) -> None:
    """Save an AutoencoderDC of 16 x 16 images and 4 x 8 x 8 latents, without a posterior."""
    torch.manual_seed(seed)
    sides = ("encoder", "decoder")
    types = {f"{side}_block_types": ("ResBlock", "ResBlock") for side in sides}
    channels = {f"{side}_block_out_channels": (8, 16) for side in sides}
    layers = {f"{side}_layers_per_block": (1, 1) for side in sides}
    vae = AutoencoderDC(
        latent_channels=4, encoder_qkv_multiscales=((), ()), decoder_qkv_multiscales=((), ()),
        **types, **channels, **layers,
    )  # fmt: skip
    with torch.no_grad():
        latent = vae.encode(random_images()).latent
    vae.register_to_config(scaling_factor=1 / latent.std().item())
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
    {"kl": save_kl, "cosmos": save_cosmos}[(sys.argv[2:] or ["kl"])[0]](Path(sys.argv[1]))
