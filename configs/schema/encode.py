"""The encoding of an image folder into a latent store."""

from typing import Literal

from pydantic import Field

from configs.schema.key import KeyGroup, key
from configs.schema.run import Run


class Encoding(KeyGroup):
    """The images to encode, the VAE, and the format of the store."""

    images: str | None = key(
        None, "folder of images: one sub-folder per class", needed=True, path="folder"
    )
    vae: str | None = key(
        None, "folder of an AutoencoderKL of diffusers", needed=True, path="folder"
    )
    features: str | None = key(
        None,
        "folder of a DINOv2 of transformers, whose features are stored for repa; null: none",
        path="folder",
    )
    feature_grid: int = key(
        16, "features per side of an image: the patches per side of the model", "clock", ge=1
    )
    out: str | None = key(None, "folder of the new store", needed=True, path="new")
    size: int = key(256, "side of an image after scaling and cropping", "clock", unit="px", ge=1)
    flip: bool = key(True, "also encode the mirrored images", "clock")
    precision: Literal["fp32", "tf32", "bf16"] = key(
        "fp32", "precision of the VAE: fp32 without TF32, tf32 (GPUs), or bf16 by autocast", "clock"
    )
    dtype: Literal["float16", "float32"] = key("float16", "data type of the stored latents")
    micro_batch: int = key(16, "images that a rank encodes at once", "clock", free=True, ge=1)
    shard_examples: int = key(4096, "images per shard, which a rank holds in memory", "clock", ge=1)
    workers: int = key(0, "loader processes per rank", "clock", free=True, ge=0)


class Encode(Run):
    """Encode an image folder into a latent store under torchrun."""

    kind: Literal["encode"] = key("encode", "kind of run")
    encode: Encoding = Field(default_factory=Encoding)
