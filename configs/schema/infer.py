"""Timed sampling of images from Flux with a LoRA."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import key
from configs.schema.prompts import TOKEN_PX, check_prompts
from configs.schema.run import Run


class Infer(Run):
    """Sample images from prompts with a fine-tuned Flux, and measure seconds per image.

    Keys that are null take the value of the fine-tuning `run`. Without a run, a model `folder`
    and prompts are required, and `lora` is optional.
    """

    kind: Literal["infer"] = key("infer", "kind of run")
    run: str | None = key(None, "folder of a fine-tuning run", "loss", path="fine-tuning run")
    step: int | None = key(None, "step of the LoRA; null: the newest", "loss", ge=1)
    lora: str | None = key(None, "file of a LoRA, instead of that of the run", "loss", path="file")
    lora_scale: float = key(1.0, "factor of the LoRA; 0 is the base model", "loss", ge=0)
    folder: str | None = key(None, "model folder in diffusers layout", "loss", path="folder")
    variant: Literal["schnell", "dev"] | None = key(
        None, "variant of Flux; null: that of the run, else schnell", "loss"
    )
    precision: Literal["bf16", "fp32"] | None = key(
        None, "precision of base and arithmetic; null: the run's, else bf16", "loss clock"
    )
    prompts: list[str] = key([], "prompts; empty: those of the run", "loss")
    trigger: str | None = key(None, "word that replaces [trigger]; null: that of the run", "loss")
    images: int = key(1, "images per prompt, each from its own noise", "clock", ge=1)
    width: int | None = key(
        None,
        "width of an image; null: that of the run, else 1024",
        "loss clock",
        unit="px",
        ge=TOKEN_PX,
    )
    height: int | None = key(
        None,
        "height of an image; null: that of the run, else 1024",
        "loss clock",
        unit="px",
        ge=TOKEN_PX,
    )
    steps: int | None = key(
        None, "sampler steps; null: those of the run, else 4", "loss clock", ge=1
    )
    guidance: float | None = key(
        None, "distilled guidance, dev only; null: that of the run, else 1", "loss", ge=0
    )
    seed: int = key(42, "seed of the noise; image n uses seed + n", "loss", ge=0, lt=2**31)
    warmup: int = key(1, "untimed images sampled first and discarded", "clock", ge=0)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Infer":
        if self.run is None and self.folder is None:
            raise ValueError("name a fine-tuning run, such as run=logs/RUN, or a model folder")
        if self.run is None or self.prompts:
            check_prompts(self.prompts, self.width or TOKEN_PX, self.height or TOKEN_PX)
        return self
