"""Fine-tuning of Flux with a LoRA, by ai-toolkit or by the engine in `finetune/native`.

Both engines honour every key, but `validation`, which is the embedded engine's, and `aitoolkit`,
which is ai-toolkit's.
"""

from typing import Any, Literal

from pydantic import Field, model_validator

from configs.schema.key import KeyGroup, key
from configs.schema.run import Run

# Two VAE factors of 8 and a patch of 2 latents make a token.
_TOKEN_PX = 16


class Flux(KeyGroup):
    """The model that is tuned: a folder as diffusers saves one, read from this disk alone."""

    folder: str | None = key(None, "model folder in diffusers layout", "loss", path="folder")
    variant: Literal["schnell", "dev"] = key(
        "schnell", "which Flux it is: dev takes the guidance as an input", "loss"
    )
    assistant_lora: str | None = key(
        None,
        "file of the LoRA that undoes schnell's distillation: on in training, off in samples",
        "loss",
        path="file",
    )
    quantise: Literal["none", "int8", "float8"] = key(
        "none", "how the weights of the base are held, 8 bits each or whole", "loss", "clock"
    )


class Captioned(KeyGroup):
    """The images to learn, each beside a text file of the same name, its caption."""

    folder: str | None = key(
        None, "folder of images, NAME.png with NAME.txt", "loss", path="folder"
    )
    trigger: str | None = key(None, "what [trigger] stands for in captions and prompts", "loss")
    resolutions: list[int] = key(
        [512, 768, 1024],
        "each image is seen at each of these: its area is about the square of it",
        "loss",
        "clock",
        unit="px",
    )
    bucket: int = key(
        64, "sides of scaled images are multiples of this", "loss", "clock", unit="px", ge=_TOKEN_PX
    )
    caption_dropout: float = key(
        0.0, "share of the examples that are seen without their caption", "loss", ge=0, le=1
    )

    @model_validator(mode="after")
    def _sizes_are_sizes(self) -> "Captioned":
        if self.folder is None:
            raise ValueError("data.folder must name a folder of images with captions")
        if self.bucket % _TOKEN_PX:
            raise ValueError(f"data.bucket {self.bucket} is not a multiple of {_TOKEN_PX}")
        if not self.resolutions or len(set(self.resolutions)) < len(self.resolutions):
            raise ValueError("data.resolutions must list at least one size, and each once")
        if any(size < self.bucket for size in self.resolutions):
            raise ValueError(f"data.resolutions: none may be under data.bucket {self.bucket}")
        return self


class Lora(KeyGroup):
    """The low-rank matrices that are learned beside those of the transformer."""

    rank: int = key(16, "rank of each update", "loss", "clock", ge=1)
    alpha: float | None = key(
        None, "updates are scaled by alpha / rank; null: the rank, so by 1", "loss", gt=0
    )
    targets: Literal["attention", "attention+mlp"] = key(
        "attention+mlp", "which projections of the blocks are tuned", "loss", "clock"
    )


class LoraOptimizer(KeyGroup):
    """AdamW (eps 1e-6) at a constant rate."""

    kind: Literal["adamw", "adamw8bit"] = key(
        "adamw", "adamw8bit holds its moments in 8 bits, where CUDA is", "loss", "clock"
    )
    lr: float = key(1e-4, "learning rate", "loss", gt=0)
    beta1: float = key(0.9, "decay of the first moment", "loss", ge=0, lt=1)
    beta2: float = key(0.999, "decay of the second moment", "loss", ge=0, lt=1)
    weight_decay: float = key(0.01, "decoupled decay", "loss", ge=0)
    clip: float = key(1.0, "largest gradient norm", "loss", gt=0)


class LoraTraining(KeyGroup):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(500, "optimizer steps", "loss", free=True, unit="steps", ge=1)
    global_batch: int = key(1, "images per step, over all ranks", "loss", "clock", ge=1)
    micro_batch: int | None = key(
        None,
        "images per rank and backward; null: the whole share of a rank",
        "clock",
        free=True,
        ge=1,
    )
    precision: Literal["bf16", "fp32"] = key(
        "bf16", "of the base and of the arithmetic; the LoRA is fp32", "loss", "clock"
    )
    gradient_checkpointing: bool = key(
        True, "compute blocks again in the backward pass, to save memory", "clock"
    )
    timesteps: Literal["sigmoid", "linear", "shift"] = key(
        "sigmoid",
        "times t in 0..1: the sigmoid of a normal draw; evenly; or evenly and shifted towards "
        "noise by the size of the image, as samples are",
        "loss",
    )
    ema_decay: float | None = key(
        0.99, "decay of the averaged LoRA, per step; null: none is kept", "loss", ge=0, lt=1
    )
    hang_s: float | None = key(
        300.0,
        "seconds without a move (and five median steps) after which a rank counts as hung, and "
        "the attempt ends; null: never",
        free=True,
        unit="s",
        gt=0,
    )


class LoraCheckpoint(KeyGroup):
    """How often the LoRA and all that a resume needs are saved, and how many saves stay."""

    every: int = key(
        250, "steps between saves; the last step is saved too", free=True, unit="steps", ge=1
    )
    keep: int = key(4, "newest saves that are kept", free=True, ge=1)


class Strata(KeyGroup):
    """The loss of the averaged LoRA on the training images, at fixed times with fixed noise."""

    every: int | None = key(
        None,
        "steps between evaluations; null: none but before the first step and after the last",
        free=True,
        unit="steps",
        ge=1,
    )
    strata: int = key(4, "times that each image is judged at, spread evenly", "loss", ge=1)
    noises: int = key(2, "noises that each image is judged with at each time", "loss", ge=1)


class Pictures(KeyGroup):
    """The samples drawn before the first step, on the way, and after the last."""

    every: int | None = key(
        250,
        "steps between samples; null: none but before the first step and after the last",
        free=True,
        unit="steps",
        ge=1,
    )
    prompts: list[str] = key([], "what is drawn, an image each", free=True)
    prompts_file: str | None = key(
        None, "file of prompts, one a line, in place of prompts", free=True, path="file"
    )
    width: int = key(1024, "width of an image", free=True, unit="px", ge=_TOKEN_PX)
    height: int = key(1024, "height of an image", free=True, unit="px", ge=_TOKEN_PX)
    steps: int = key(4, "steps of the sampler; 4 do for schnell, dev takes 20", free=True, ge=1)
    guidance: float = key(1.0, "distilled guidance, which dev alone has", free=True, ge=0)
    seed: int = key(42, "prompt i is drawn from the noise of seed + i", free=True, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _something_is_drawn(self) -> "Pictures":
        check_pictures(self.prompts, self.prompts_file, self.width, self.height, group="sample.")
        return self


class Finetune(Run):
    """A LoRA of Flux, learned from a few captioned images."""

    kind: Literal["finetune"] = key("finetune", "what is run")
    seed: int = key(0, "seed of the LoRA, order, noise and times", "loss", ge=0, lt=2**31)
    engine: Literal["auto", "aitoolkit", "embedded"] = key(
        "auto",
        "who trains; auto: ai-toolkit where AI_TOOLKIT names it and for one GPU, else embedded",
        "loss",
        "clock",
    )
    flux: Flux = Field(default_factory=Flux)
    data: Captioned = Field(default_factory=Captioned)
    lora: Lora = Field(default_factory=Lora)
    optimizer: LoraOptimizer = Field(default_factory=LoraOptimizer)
    train: LoraTraining = Field(default_factory=LoraTraining)
    checkpoint: LoraCheckpoint = Field(default_factory=LoraCheckpoint)
    validation: Strata = Field(default_factory=Strata)
    sample: Pictures = Field(default_factory=Pictures)
    aitoolkit: dict[str, Any] = key(
        {}, "keys that only ai-toolkit has, by the groups of its own config", "loss", "clock"
    )

    def last_step(self) -> int:
        """The step at which it is done."""
        return self.train.steps

    @model_validator(mode="after")
    def _parts_fit(self) -> "Finetune":
        for refusal in (self._model(), self._passthrough(), self._memory()):
            if refusal:
                raise ValueError(refusal)
        return self

    def _model(self) -> str | None:
        if self.flux.folder is None:
            return "flux.folder must name a model folder in diffusers layout"
        if self.flux.assistant_lora and self.flux.variant == "dev":
            return "flux.assistant_lora is for flux.variant schnell; remove it, or set the variant"
        return None

    def _passthrough(self) -> str | None:
        if self.aitoolkit and self.engine == "embedded":
            return "aitoolkit: only ai-toolkit has these keys; remove them, or set engine=aitoolkit"
        return None

    def _memory(self) -> str | None:
        if self.optimizer.kind == "adamw8bit" and self.resources.gpus_per_node == 0:
            return "optimizer.kind adamw8bit needs a GPU: set adamw, or resources.gpus_per_node"
        return None


def check_pictures(
    prompts: list[str], prompts_file: str | None, width: int, height: int, *, group: str = ""
) -> None:
    """Raise `ValueError` where nothing can be drawn: no prompt, or a size of no whole tokens."""
    if not prompts and prompts_file is None:
        raise ValueError(f"{group}prompts is empty: list a prompt, or name {group}prompts_file")
    if prompts and prompts_file is not None:
        raise ValueError(f"{group}prompts and {group}prompts_file: give one of them")
    if any(not prompt.strip() for prompt in prompts):
        raise ValueError(f"{group}prompts holds an empty prompt; write it or remove it")
    for name, side in (("width", width), ("height", height)):
        if side % _TOKEN_PX:
            raise ValueError(f"{group}{name} {side} is not a multiple of {_TOKEN_PX}")
