"""Fine-tuning with a LoRA: any model by ai-toolkit, FLUX.1 also by `finetune/native`.

A key that the chosen engine cannot honour is refused (`configs.checks.aitoolkit`). What only
ai-toolkit has is set under `aitoolkit`, by the names of its own config.
"""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from configs.schema.key import KeyGroup, key
from configs.schema.prompts import TOKEN_PX, PromptSamples
from configs.schema.run import Run
from configs.schema.training import LearningRate

_ATTENTION = r"attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)"
_MLP = r"ff(_context)?\.net\.(0\.proj|2)|proj_mlp|proj_out"
_BLOCK = r"(single_)?transformer_blocks\.\d+\."
# Whole names of layers, by `lora.targets`. ai-toolkit's example trains `blocks`.
_PATTERNS = {
    "attention": _BLOCK + _ATTENTION,
    "attention+mlp": f"{_BLOCK}({_ATTENTION}|{_MLP})",
    "blocks": _BLOCK + ".*",
    "all": ".*",
}


class Flux(KeyGroup):
    """The model to tune, on local disk; nothing is downloaded."""

    folder: str | None = key(
        None,
        "model folder in diffusers layout, or with aitoolkit.model.arch what that model needs",
        "loss",
        needed=True,
        path="either",
        tags="picture",
    )
    assistant_lora: str | None = key(
        None,
        "file of the LoRA that undoes a distillation, such as of schnell: on in training, off in "
        "samples (ai-toolkit only)",
        "loss",
        path="file",
    )


class CaptionedImages(KeyGroup):
    """The training images and their captions."""

    folder: str | None = key(
        None, "folder of images with captions in NAME.txt", "loss", needed=True, path="folder"
    )
    trigger: str | None = key(
        None, "word that replaces [trigger] in captions and prompts", "loss", tags="picture"
    )
    resolutions: list[int] = key(
        [512, 768, 1024], "sizes of a training image: roots of its area", "loss clock", unit="px"
    )
    bucket: int = key(
        64, "sides of scaled images are multiples of this", "loss clock", unit="px", ge=TOKEN_PX
    )
    caption_dropout: float = key(
        0.0, "share of the examples without their caption", "loss", ge=0, le=1
    )

    @field_validator("resolutions", mode="before")
    @classmethod
    def _one_size_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, int) else value

    @model_validator(mode="after")
    def _sizes_are_sizes(self) -> "CaptionedImages":
        if self.bucket % TOKEN_PX:
            raise ValueError(f"data.bucket {self.bucket} is not a multiple of {TOKEN_PX}")
        if not self.resolutions or len(set(self.resolutions)) < len(self.resolutions):
            raise ValueError("data.resolutions must list at least one size, and each once")
        if any(size < self.bucket for size in self.resolutions):
            raise ValueError(f"data.resolutions: none may be under data.bucket {self.bucket}")
        return self


class Lora(KeyGroup):
    """The updates of the transformer's linear layers."""

    rank: int = key(16, "rank of each update", "loss clock", ge=1)
    targets: Literal["attention", "attention+mlp", "blocks", "all"] = key(
        "attention+mlp",
        "layers to tune: attention, attention+mlp, blocks (and their modulation) or all (and the "
        "layers around the blocks)",
        "loss clock",
    )

    def selects(self, layer: str) -> bool:
        """Return whether the linear layer of this name gets an update."""
        return re.fullmatch(_PATTERNS[self.targets], layer) is not None


class LoraTraining(KeyGroup):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(500, "optimizer steps", "loss", free=True, unit="steps", ge=1)
    global_batch: int = key(1, "images per step over all ranks", "loss clock", ge=1, short="bs")
    micro_batch: int | None = key(
        None, "images per backward pass of a rank; null: all of its share", "clock", free=True,
        ge=1, short="mb",
    )  # fmt: skip
    precision: Literal["bf16", "fp32"] = key(
        "bf16", "precision of base weights and arithmetic; the LoRA is fp32", "loss clock",
        short="d",
    )  # fmt: skip
    gradient_checkpointing: bool = key(
        True, "recompute blocks in the backward pass, to save memory", "clock"
    )
    hang_s: float | None = key(
        300.0,
        "seconds without progress (and at least five median steps) after which the attempt ends "
        "as hung; null: never",
        free=True,
        unit="s",
        gt=0,
    )


class LoraCheckpoint(KeyGroup):
    """How often the LoRA and the state for a resume are saved, and how many are kept."""

    every: int = key(
        250, "steps between checkpoints; the last is saved, too", free=True, unit="steps", ge=1
    )
    keep: int = key(4, "number of newest checkpoints to keep", free=True, ge=1)


class LoraValidation(KeyGroup):
    """The loss of the LoRA at fixed t and noise, on training and on held-out images."""

    every: int | None = key(
        None, "steps between evaluations; null: at start and end", free=True, unit="steps", ge=1
    )
    held_out: int = key(
        0, "number of images of data.folder that are evaluated and never trained on", "loss", ge=0
    )


class Finetune(Run):
    """Train a LoRA on a few captioned images."""

    kind: Literal["finetune"] = key("finetune", "kind of run")
    seed: int = key(
        0, "seed of the LoRA, order of images, noise and timesteps", "loss", ge=0, lt=2**31,
        short="s",
    )  # fmt: skip
    engine: Literal["auto", "aitoolkit", "embedded"] = key(
        "auto",
        "engine that trains; auto: ai-toolkit if AI_TOOLKIT is set and for one GPU, else embedded",
        "loss clock",
    )
    flux: Flux = Field(default_factory=Flux)
    data: CaptionedImages = Field(default_factory=CaptionedImages)
    lora: Lora = Field(default_factory=Lora)
    optimizer: LearningRate = Field(default_factory=LearningRate)
    train: LoraTraining = Field(default_factory=LoraTraining)
    checkpoint: LoraCheckpoint = Field(default_factory=LoraCheckpoint)
    validation: LoraValidation = Field(default_factory=LoraValidation)
    sample: PromptSamples = Field(default_factory=PromptSamples)
    aitoolkit: dict[str, Any] = key(
        {}, "further keys of ai-toolkit, by the groups of its own config", "loss clock"
    )

    def last_step(self) -> int:
        """Return the step at which the run is done."""
        return self.train.steps
