"""A fine-tuned Flux made ready to draw, and the seconds that each image takes."""

import time
from dataclasses import dataclass

import torch
from PIL import Image

from configs.checks.infer import InferSpec
from finetune.native.base_model import DTYPES, load_transformer, place
from finetune.native.encoders import TEXT_TOKENS, embed, load_text_encoders, load_vae
from finetune.native.lora import load_lora
from finetune.native.pipeline import ImagePipeline, ImageSpec
from train.engine.clocks import Clocks

# No image that is kept is drawn from it.
_WARMUP_SEED = 0


@dataclass(frozen=True, kw_only=True)
class TimedImage:
    """An image and how long it took, from embedded text to pixels."""

    image: Image.Image
    image_s: float


class LoraPipeline:
    """Draws the prompts of a `InferSpec`, by their numbers; what is loaded when is on `clocks`.

    The text encoders are gone before the transformer comes, so that either has the memory alone.
    """

    def __init__(
        self, asked: InferSpec, *, lora_scale: float, device: torch.device, clocks: Clocks
    ) -> None:
        self._asked, self._device, self._clocks = asked, device, clocks
        self.prompts = asked.prompts
        dtype = DTYPES[asked.precision]
        clocks.lap("setup")
        encoders = load_text_encoders(asked.folder, device, dtype)
        clocks.lap("load", drain=True)
        tokens = TEXT_TOKENS[asked.variant]
        self._texts = [embed(encoders, prompt, tokens=tokens) for prompt in asked.prompts]
        del encoders
        clocks.lap("text", drain=True)
        transformer = load_transformer(asked.folder, dtype)
        clocks.lap("load")
        place(transformer, device, quantise=asked.quantise)
        clocks.lap("load" if asked.quantise == "none" else "quantise", drain=True)
        if asked.lora and lora_scale:
            load_lora(transformer, asked.lora, scale=lora_scale)
        vae = load_vae(asked.folder, device, dtype)
        self._painter = ImagePipeline(transformer, vae, asked.folder, asked.precision)
        clocks.lap("load", drain=True)

    def warm_up(self, images: int) -> dict[str, float]:
        """Draw `images` that nobody keeps; the seconds of the first, if there was one."""
        seconds = [self.draw(0, seed=_WARMUP_SEED).image_s for _ in range(images)]
        self._clocks.lap("warmup")
        return {"first_image_s": seconds[0]} if seconds else {}

    def draw(self, prompt: int, *, seed: int) -> TimedImage:
        """One image of a prompt from the noise of a seed."""
        asked = self._asked
        canvas = ImageSpec(
            width=asked.width, height=asked.height, steps=asked.steps, guidance=asked.guidance
        )
        self._wait()
        began = time.perf_counter()
        image = self._painter.paint(self._texts[prompt], canvas, seed=seed)
        self._wait()
        return TimedImage(image=image, image_s=time.perf_counter() - began)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
