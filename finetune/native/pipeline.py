"""Sample images from Flux; noise is drawn on the CPU, so that it is the same on every GPU."""

import time
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

from configs.disk import replacing
from configs.schema.prompts import PromptSamples
from finetune.native.base_model import DTYPES, load_transformer
from finetune.native.encoders import embed, load_text_encoders, load_vae
from finetune.native.lora import load_lora
from runs.checks.infer import InferSpec
from train.engine.clocks import Clocks

# Any seed will do: warm-up images are discarded.
_WARMUP_SEED = 0


@dataclass(frozen=True, kw_only=True)
class TimedImage:
    """An image and the seconds from embedded text to pixels."""

    image: Image.Image
    image_s: float


class ImagePipeline:
    """Samples with a transformer and a VAE that are loaded already."""

    def __init__(
        self, transformer: FluxTransformer2DModel, vae: AutoencoderKL, folder: Path
    ) -> None:
        scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler")
        self.transformer = transformer
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

    def sample(self, text: dict[str, Tensor], spec: PromptSamples, *, seed: int) -> TimedImage:
        """Sample one image of an embedded `text` from the noise of `seed`."""
        device = self.transformer.device
        # No synchronisation is needed: the pixels are copied to the host, which waits for the GPU.
        begin = time.perf_counter()
        noise = initial_noise(seed, width=spec.width, height=spec.height)
        output = self._pipeline(
            prompt_embeds=text["prompt"][None].to(device),
            pooled_prompt_embeds=text["pooled"][None].to(device),
            latents=FluxPipeline._pack_latents(noise, *noise.shape).to(device),
            width=spec.width,
            height=spec.height,
            num_inference_steps=spec.steps,
            guidance_scale=spec.guidance,
        )
        image = output.images[0]
        assert isinstance(image, Image.Image)
        return TimedImage(image=image, image_s=time.perf_counter() - begin)


class LoraPipeline:
    """Samples the prompts of an `InferSpec`, by index; loading times are on `clocks`.

    The text encoders are freed before the transformer is loaded, so that each has the memory to
    itself.
    """

    def __init__(
        self, spec: InferSpec, *, lora_scale: float, device: torch.device, clocks: Clocks
    ) -> None:
        self.prompts, self._settings, self._clocks = spec.prompts, spec.tuned.sample, clocks
        dtype = DTYPES[spec.tuned.train.precision]
        clocks.lap("setup")
        encoders = load_text_encoders(spec.model, device, dtype)
        clocks.lap("load", drain=True)
        self._texts = [embed(encoders, each) for each in spec.prompts]
        del encoders
        clocks.lap("text", drain=True)
        transformer = load_transformer(spec.model, dtype, device=device)
        if lora_scale:
            load_lora(transformer, spec.lora, scale=lora_scale)
        vae = load_vae(spec.model, device, dtype)
        self._pipeline = ImagePipeline(transformer, vae, spec.model)
        clocks.lap("load", drain=True)

    def warm_up(self, images: int) -> dict[str, float]:
        """Sample and discard `images`; return the time of the first as `first_image_s`, if any."""
        seconds = [self.sample(0, seed=_WARMUP_SEED).image_s for _ in range(images)]
        self._clocks.lap("warmup")
        return {"first_image_s": seconds[0]} if seconds else {}

    def sample(self, prompt: int, *, seed: int) -> TimedImage:
        """Sample one image of a prompt from the noise of a seed."""
        return self._pipeline.sample(self._texts[prompt], self._settings, seed=seed)


def initial_noise(seed: int, *, width: int, height: int) -> Tensor:
    """Return the noise of a seed, `[1, 16, H/8, W/8]`, the same on any machine."""
    shape = (1, 16, height // 8, width // 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def save_image(image: Image.Image, file: Path, *, metadata: dict[str, str]) -> None:
    """Write a PNG atomically, with metadata as text chunks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    info = PngInfo()
    for name, value in metadata.items():
        info.add_itxt(name, value)
    with replacing(file) as stream:
        image.save(stream, "PNG", pnginfo=info)
