"""Timed sampling of images from a fine-tuned Flux."""

from typing import Literal

from configs.schema.key import key
from configs.schema.run import Run


class Infer(Run):
    """Sample images from prompts with the LoRA of a run, and measure seconds per image.

    Model, sizes, sampler steps and guidance are the run's.
    """

    kind: Literal["infer"] = key("infer", "kind of run")
    run: str | None = key(
        None, "folder of a fine-tuning run", "loss", needed=True, path="fine-tuning run"
    )
    step: int | None = key(None, "step of the LoRA; null: the newest", "loss", ge=1)
    lora_scale: float = key(1.0, "factor of the LoRA; 0 is the base model", "loss", ge=0)
    prompts: list[str] = key([], "prompts; empty: the run's", "loss")
    images: int = key(1, "images per prompt, each from its own noise", "clock", ge=1)
    seed: int = key(42, "seed of the noise; image n uses seed + n", "loss", ge=0, lt=2**31)
    warmup: int = key(1, "untimed images sampled first and discarded", "clock", ge=0)
