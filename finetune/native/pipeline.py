"""Images drawn from Flux: noise from the CPU, so that every GPU starts from the same bits."""

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
)
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from configs.disk import sync_folder
from finetune.native.base_model import arithmetic


@dataclass(frozen=True, kw_only=True)
class ImageSpec:
    """Size in pixels, steps of the sampler and distilled guidance of an image."""

    width: int
    height: int
    steps: int
    guidance: float


class ImagePipeline:
    """Draws from a transformer and a VAE that are loaded already."""

    def __init__(
        self, transformer: FluxTransformer2DModel, vae: AutoencoderKL, folder: Path, precision: str
    ) -> None:
        scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
        self.transformer, self._precision = transformer, precision
        self._pipeline = FluxPipeline(
            scheduler=scheduler,
            vae=vae,
            text_encoder=None,
            tokenizer=None,
            text_encoder_2=None,
            tokenizer_2=None,
            transformer=transformer,
        )
        self._pipeline.set_progress_bar_config(disable=True)

    def paint(self, text: dict[str, Tensor], canvas: ImageSpec, *, seed: int) -> Image.Image:
        """One image of an embedded text, from the noise of `seed`."""
        device = self.transformer.device
        noise = starting_noise(seed, canvas)
        with arithmetic(device, self._precision):
            drawn = self._pipeline(
                prompt_embeds=text["prompt"][None].to(device),
                pooled_prompt_embeds=text["pooled"][None].to(device),
                latents=FluxPipeline._pack_latents(noise, *noise.shape).to(device),
                width=canvas.width,
                height=canvas.height,
                num_inference_steps=canvas.steps,
                guidance_scale=canvas.guidance,
            )
        image = drawn.images[0]
        assert isinstance(image, Image.Image)
        return image


def starting_noise(seed: int, canvas: ImageSpec) -> Tensor:
    """The noise of a seed for an image, `[1, 16, H/8, W/8]`, the same on any machine."""
    shape = (1, 16, canvas.height // 8, canvas.width // 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def save_image(image: Image.Image, file: Path, *, note: dict[str, str]) -> None:
    """Write a PNG that says what it was made of, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    said = PngInfo()
    for name, value in note.items():
        said.add_itxt(name, value)
    beside = file.with_suffix(".partial.png")
    image.save(beside, pnginfo=said)
    beside.replace(file)
    sync_folder(file.parent)


def save_row(files: list[Path], file: Path) -> None:
    """Images of one size side by side."""
    images = [Image.open(each) for each in files]
    width, height = images[0].size
    row = Image.new("RGB", (width * len(images), height))
    for place, image in enumerate(images):
        row.paste(image, (place * width, 0))
    save_image(row, file, note={})
