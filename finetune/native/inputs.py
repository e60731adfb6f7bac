"""The images and texts of a run, encoded once at the start of each attempt and kept in memory."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from configs.checks.captions import fill_trigger
from configs.checks.dataset import CaptionedFile, image_set
from configs.schema import Finetune
from finetune.native.base_model import DTYPES
from finetune.native.encoders import (
    embed,
    encode,
    fitted_image,
    load_text_encoders,
    load_vae,
    pixels,
)
from train.engine.clocks import Clocks
from train.engine.metrics import log


@dataclass(frozen=True)
class PromptText:
    """A text to embed: a prompt, or the caption of an image."""

    text: str


@dataclass(frozen=True)
class CaptionedImage(PromptText):
    """An image and its caption."""

    image: Path


NO_CAPTION = PromptText("")

# By text: its embeddings `prompt` and `pooled`, and of an image a latent for each resolution.
Encoded = dict[PromptText, dict[str, Tensor]]


class RunInputs:
    """Everything that a run encodes: images with captions, sample prompts, the empty caption."""

    def __init__(self, config: Finetune) -> None:
        found, trigger = image_set(config), config.data.trigger
        self.prompts = [fill_trigger(prompt, trigger) for prompt in config.sample.prompts]
        self.training = [_captioned(file, trigger) for file in found.training]
        self.held_out = [_captioned(file, trigger) for file in found.held_out]

    def encode(self, config: Finetune, clocks: Clocks, *, device: torch.device) -> Encoded:
        """Return everything encoded; each rank encodes all of it."""
        folder, images = Path(str(config.flux.folder)), [*self.training, *self.held_out]
        clocks.lap("setup")
        # In float32: images are encoded once, and precision lost here cannot be recovered.
        vae = load_vae(folder, device, torch.float32)
        data = config.data
        latents: Encoded = {
            image: {
                latent_name(size): encode(
                    vae, pixels(fitted_image(image.image, resolution=size, bucket=data.bucket))
                )
                for size in data.resolutions
            }
            for image in images
        }
        del vae
        encoders = load_text_encoders(folder, device, DTYPES[config.train.precision])
        texts = [*images, NO_CAPTION, *map(PromptText, self.prompts)]
        encoded = {text: embed(encoders, text.text) | latents.get(text, {}) for text in texts}
        del encoders
        log.info("encoded %d images and texts", len(encoded))
        if device.type == "cuda":
            # The peak memory of training must not include the encoders.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        clocks.lap("cache", drain=True)
        return encoded


def _captioned(file: CaptionedFile, trigger: str | None) -> CaptionedImage:
    return CaptionedImage(fill_trigger(file.text(), trigger), file.image)


def latent_name(resolution: int) -> str:
    """Return the tensor name of the latent of an image at a resolution."""
    return f"latent.{resolution}"
