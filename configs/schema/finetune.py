"""Fine-tuning of Flux with a LoRA, by ai-toolkit or by the engine in `finetune/native`.

A key that the chosen engine cannot honour is refused (`configs.checks.aitoolkit`); only
`validation` has no effect on ai-toolkit.
"""

import re
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from configs.schema.key import KeyGroup, key
from configs.schema.prompts import TOKEN_PX, PromptSamples
from configs.schema.run import Run
from configs.schema.training import LearningRate

_ATTENTION = r"attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)"
_MLP = r"ff(_context)?\.net\.(0\.proj|2)|proj_mlp|proj_out"
_BLOCK = r"(single_)?transformer_blocks\.\d+\."
# The layers that a word of `lora.targets` means. ai-toolkit's example trains those of `blocks`.
_TARGETS = {
    "attention": _BLOCK + _ATTENTION,
    "attention+mlp": f"{_BLOCK}({_ATTENTION}|{_MLP})",
    "blocks": _BLOCK + ".*",
    "all": ".*",
}
_OPTIMIZER = "train.optimizer train.optimizer_params"
# A smaller factor of Prodigy's rate is a rate meant for AdamW (ai-toolkit replaces it by 1).
_LEAST_PRODIGY = 0.1


class Flux(KeyGroup):
    """The model to tune: a local folder in diffusers layout; nothing is downloaded."""

    folder: str | None = key(
        None, "model folder in diffusers layout", "loss", path="folder", tags="picture"
    )
    variant: Literal["schnell", "dev"] = key(
        "schnell", "variant of Flux; dev takes guidance as an input", "loss", tags="picture",
        label="", aitoolkit="model.arch",
    )  # fmt: skip
    assistant_lora: str | None = key(
        None,
        "file of the LoRA that undoes the distillation of schnell: on in training, off in samples",
        "loss",
        path="file",
    )
    text_tokens: int = key(
        512,
        "tokens of T5 per text; ai-toolkit takes 512; 256, as in schnell's distillation, cost less",
        "loss clock",
        ge=1,
        le=512,
        tags="picture",
    )
    quantise: Literal["none", "int8", "float8"] = key(
        "none", "quantisation of the base weights to 8 bits (engine aitoolkit only)", "loss clock",
        label="base", aitoolkit="model.qtype",
    )  # fmt: skip


class CaptionedImages(KeyGroup):
    """The training images and their captions."""

    folder: str | None = key(
        None,
        "folder of images with captions in NAME.txt, NAME.caption, metadata.jsonl or metadata.csv",
        "loss",
        path="folder",
    )
    repeats: dict[str, int] = key(
        {},
        "by sub-folder: times per epoch that its images are trained on; one named N_NAME says it",
        "loss",
    )
    flip: bool = key(False, "mirror half of the examples left to right", "loss")
    masks: str | None = key(
        None,
        "folder of an image NAME.png for each training image: the loss is weighted by its grey "
        "(engine aitoolkit only)",
        "loss",
        path="folder",
    )
    regularisation: str | None = key(
        None,
        "folder of captioned images that every other step trains on (engine aitoolkit only)",
        "loss",
        path="folder",
    )
    regularisation_weight: float = key(
        1.0, "weight of the loss on regularisation images", "loss", gt=0
    )
    trigger: str | None = key(
        None, "word that replaces [trigger] in captions and prompts", "loss", tags="picture"
    )
    resolutions: list[int] = key(
        [512, 768, 1024], "sizes of a training image: roots of its area", "loss clock", unit="px",
        label="sizes",
    )  # fmt: skip
    bucket: int = key(
        64, "sides of scaled images are multiples of this", "loss clock", unit="px", ge=TOKEN_PX
    )
    caption_dropout: float = key(
        0.0, "share of the examples without their caption", "loss", ge=0, le=1
    )

    @model_validator(mode="after")
    def _sizes_are_sizes(self) -> "CaptionedImages":
        if self.folder is None:
            raise ValueError("data.folder must name a folder of images with captions")
        if any(count < 0 for count in self.repeats.values()):
            raise ValueError("data.repeats: a number is negative; 0 leaves a folder out")
        if self.folder in (self.masks, self.regularisation):
            raise ValueError(
                "data.masks and data.regularisation: name folders other than data.folder"
            )
        if self.bucket % TOKEN_PX:
            raise ValueError(f"data.bucket {self.bucket} is not a multiple of {TOKEN_PX}")
        if not self.resolutions or len(set(self.resolutions)) < len(self.resolutions):
            raise ValueError("data.resolutions must list at least one size, and each once")
        if any(size < self.bucket for size in self.resolutions):
            raise ValueError(f"data.resolutions: none may be under data.bucket {self.bucket}")
        return self


class Lora(KeyGroup):
    """The updates of the transformer's linear layers."""

    kind: Literal["lora", "lokr", "dora"] = key(
        "lora",
        "lora: B A; lokr: a Kronecker product of a small matrix and B A (Yeh et al. 2024), engine "
        "aitoolkit only",
        "loss clock",
        aitoolkit="network.type",
    )
    rank: int = key(16, "rank of each update", "loss clock", ge=1, label="rank")
    alpha: float | None = key(
        None, "scale of the updates is alpha / rank; null: alpha = rank", "loss", gt=0,
        label="alpha",
    )  # fmt: skip
    targets: str = key(
        "attention+mlp",
        "layers to tune: attention, attention+mlp, blocks (and their modulation), all (and the "
        "layers around the blocks), or a regular expression of whole names of layers",
        "loss clock",
        aitoolkit="model.arch network.network_kwargs",
    )
    rank_pattern: dict[str, PositiveInt] = key(
        {}, "rank by regular expression of the end of a name, such as attn.to_q: 32", "loss clock"
    )
    alpha_pattern: dict[str, PositiveFloat] = key({}, "alpha, as rank_pattern", "loss")
    dropout: float = key(
        0.0, "share of the inputs of A that is dropped in training", "loss", ge=0, lt=1
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "Lora":
        if self.kind == "lokr" and self.dropout:
            raise ValueError("lora.dropout: lokr has no A whose inputs to drop; set it to 0")
        for pattern in (self.targets, *self.rank_pattern, *self.alpha_pattern):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"lora: {pattern!r} is no regular expression: {error}") from None
        return self

    def alphas(self) -> dict[str, float]:
        """Return alpha by pattern; one that is not given is the rank, unless `alpha` is set."""
        ranks = self.rank_pattern if self.alpha is None else {}
        return self.alpha_pattern | {k: r for k, r in ranks.items() if k not in self.alpha_pattern}

    def selects(self, layer: str) -> bool:
        """Return whether the linear layer of this name gets an update."""
        return re.fullmatch(_TARGETS.get(self.targets, self.targets), layer) is not None


class LoraOptimizer(LearningRate):
    """The optimizer (eps 1e-6) and its learning rate."""

    kind: Literal["adamw", "adamw8bit", "prodigy"] = key(
        "adamw",
        "adamw; adamw8bit: moments in 8 bits (CUDA only); prodigy: AdamW that estimates its rate, "
        "with lr (usually 1) as a factor",
        "loss clock",
        label="",
        aitoolkit="train.optimizer",
    )
    beta1: float = key(
        0.9, "decay rate of the first moment", "loss", ge=0, lt=1, aitoolkit=_OPTIMIZER
    )
    beta2: float = key(
        0.999, "decay rate of the second moment", "loss", ge=0, lt=1, aitoolkit=_OPTIMIZER
    )
    weight_decay: float = key(0.01, "decoupled weight decay", "loss", ge=0, aitoolkit=_OPTIMIZER)
    clip: float = key(1.0, "maximum gradient norm", "loss", gt=0)


class LoraTraining(KeyGroup):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(500, "optimizer steps", "loss", free=True, unit="steps", ge=1, tags="scale")
    global_batch: int = key(
        1, "images per step over all ranks", "loss clock", ge=1, tags="scale", short="bs",
        label="batch",
    )  # fmt: skip
    micro_batch: int | None = key(
        None, "images per backward pass of a rank; null: all of its share", "clock", free=True,
        ge=1, tags="scale", short="mb",
    )  # fmt: skip
    precision: Literal["bf16", "fp32"] = key(
        "bf16", "precision of base weights and arithmetic; the LoRA is fp32", "loss clock",
        short="d", label="",
    )  # fmt: skip
    gradient_checkpointing: bool = key(
        True, "recompute blocks in the backward pass, to save memory", "clock"
    )
    compile: bool = key(
        False, "compile each block (native engine only); not measured on a GPU yet", "clock",
        short="c",
    )  # fmt: skip
    timesteps: Literal["sigmoid", "linear", "shift", "weighted"] = key(
        "sigmoid",
        "distribution of t: the sigmoid of a normal; uniform (linear); uniform and shifted "
        "towards noise by image size, as in sampling (shift); or uniform, with a loss that "
        "ai-toolkit weights by t (weighted, engine aitoolkit only)",
        "loss",
        aitoolkit="train.timestep_type",
    )
    shift: float | None = key(
        None,
        "s of a shift of t to s t / (1 + (s - 1) t); null: none, or by image size",
        "loss",
        gt=0,
    )
    logit_mean: float = key(0.0, "sigmoid: mean of the normal", "loss")
    logit_std: float = key(1.0, "sigmoid: its standard deviation", "loss", gt=0)
    ema_decay: float | None = key(
        0.99, "EMA decay of the LoRA, per step; null: no EMA", "loss", ge=0, lt=1
    )
    hang_s: float | None = key(
        300.0,
        "seconds without progress (and at least five median steps) after which the attempt ends "
        "as hung; null: never",
        free=True,
        unit="s",
        gt=0,
    )

    @model_validator(mode="after")
    def _times_fit(self) -> "LoraTraining":
        if self.timesteps != "sigmoid" and (self.logit_mean, self.logit_std) != (0, 1):
            raise ValueError("train.logit_mean, logit_std: only train.timesteps sigmoid has them")
        return self


class LoraCheckpoint(KeyGroup):
    """How often the LoRA and the state for a resume are saved, and how many are kept."""

    every: int = key(
        250, "steps between checkpoints; the last is saved, too", free=True, unit="steps", ge=1
    )
    keep: int = key(4, "number of newest checkpoints to keep", free=True, ge=1)
    dtype: Literal["float32", "float16", "bfloat16"] = key(
        "float32", "type of the numbers in files of the LoRA", free=True
    )


class LoraValidation(KeyGroup):
    """The loss of the averaged LoRA at fixed t and noise, on training and on held-out images."""

    every: int | None = key(
        None, "steps between evaluations; null: at start and end", free=True, unit="steps", ge=1
    )
    strata: int = key(4, "values of t per image, evenly spaced", "loss", ge=1)
    noises: int = key(2, "noise draws per image and t", "loss", ge=1)
    held_out: int = key(
        0, "number of images of data.folder that are evaluated and never trained on", "loss", ge=0
    )


class Finetune(Run):
    """Train a LoRA of Flux on a few captioned images."""

    kind: Literal["finetune"] = key("finetune", "kind of run")
    seed: int = key(
        0, "seed of the LoRA, order of images, noise and timesteps", "loss", ge=0, lt=2**31,
        tags="scale", short="s",
    )  # fmt: skip
    engine: Literal["auto", "aitoolkit", "embedded"] = key(
        "auto",
        "engine that trains; auto: ai-toolkit if AI_TOOLKIT is set and for one GPU, else embedded",
        "loss clock",
    )
    flux: Flux = Field(default_factory=Flux)
    data: CaptionedImages = Field(default_factory=CaptionedImages)
    lora: Lora = Field(default_factory=Lora)
    optimizer: LoraOptimizer = Field(default_factory=LoraOptimizer)
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

    @model_validator(mode="after")
    def _parts_fit(self) -> "Finetune":
        for refusal in (self._model(), self._optimizer()):
            if refusal:
                raise ValueError(refusal)
        return self

    def _model(self) -> str | None:
        if self.flux.folder is None:
            return "flux.folder must name a model folder in diffusers layout"
        if self.flux.assistant_lora and self.flux.variant == "dev":
            return "flux.assistant_lora is for flux.variant schnell; remove it, or set the variant"
        return None

    def _optimizer(self) -> str | None:
        kind = self.optimizer.kind
        if kind == "adamw8bit" and self.resources.gpus_per_node == 0:
            return "optimizer.kind adamw8bit needs a GPU: set adamw, or resources.gpus_per_node"
        if kind == "prodigy" and self.optimizer.lr < _LEAST_PRODIGY:
            return (
                f"optimizer.lr {self.optimizer.lr:g}: prodigy multiplies the rate that it "
                "estimates by lr; set optimizer.lr to 1"
            )
        return None
