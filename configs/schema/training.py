"""How the network is trained: optimizer, batch, layout over ranks, checkpoints, resources."""

import math
from typing import Literal

from pydantic import Field, model_validator

from configs.schema.key import KeyGroup, key


class LearningRate(KeyGroup):
    """The learning rate warms up, stays constant, and decays over the last steps."""

    lr: float = key(1e-4, "learning rate after warm-up", "loss", gt=0, short="lr")
    warmup_steps: int = key(0, "steps of linear warm-up from 0", "loss", unit="steps", ge=0)
    decay: float = key(
        0.0, "share of train.steps, at the end, over which lr decays", "loss", ge=0, le=1
    )
    decay_shape: Literal["linear", "sqrt", "cosine"] = key(
        "linear", "shape of the decay: linear; sqrt: 1 - sqrt(its part done); cosine", "loss"
    )
    decay_to: float = key(0.0, "final learning rate, as a share of lr", "loss", ge=0, le=1)

    def rate(self, *, step: int, steps: int) -> float:
        """Return the learning rate of `step` (from 1) of `steps`."""
        warm = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        falling = self.decay * steps
        left = max(0.0, min(1.0, (steps - step + 1) / falling)) if falling else 1.0
        if self.decay_shape == "sqrt":  # Hägele et al. 2024 (arXiv 2405.18392)
            left = 1 - math.sqrt(1 - left)
        elif self.decay_shape == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return self.lr * warm * (self.decay_to + (1 - self.decay_to) * left)


class Optimizer(LearningRate):
    """The optimizer and its learning rate."""

    kind: Literal["adamw", "muon"] = key(
        "adamw", "adamw; muon: Muon for the matrices of blocks, AdamW for the rest", "loss clock"
    )
    momentum: float = key(0.95, "decay rate of Muon's momentum", "loss", ge=0, lt=1)
    beta1: float = key(0.9, "decay rate of the first moment", "loss", ge=0, lt=1)
    beta2: float = key(0.95, "decay rate of the second moment", "loss", ge=0, lt=1)
    eps: float = key(1e-8, "term added to the root of the second moment", "loss", gt=0)
    weight_decay: float = key(0.0, "decoupled weight decay of matrices", "loss", ge=0)
    clip: float | None = key(1.0, "maximum gradient norm; null: no clipping", "loss", gt=0)


class Train(KeyGroup):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(1000, "optimizer steps", "loss", free=True, unit="steps", ge=1)
    branch_from: str | None = key(
        None,
        "checkpoint of another run, logs/RUN/checkpoints/step-N, whose whole state to begin from",
        "loss",
        path="folder",
    )
    global_batch: int = key(256, "images per step over all ranks", "loss clock", ge=1, short="bs")
    micro_batch: int | Literal["auto"] | None = key(
        None,
        "images per data rank and backward pass; null: the whole share of a rank; auto: as many "
        "as fit",
        "clock",
        free=True,
        short="mb",
    )
    precision: Literal["fp32", "tf32", "bf16"] = key(
        "bf16",
        "precision of the forward pass: bf16 by autocast over fp32 parameters; fp32 without TF32, "
        "tf32 with it",
        "loss clock",
        short="d",
    )
    reduce: Literal["fp32", "bf16"] = key(
        "fp32", "type of the sum of gradients over ranks", "loss clock"
    )
    compile: bool | Literal["auto"] = key(
        "auto", "compile each block; auto: on GPUs if possible", "clock", short="c"
    )
    check_gradients: Literal["first", "never"] = key(
        "first", "compare compiled and tensor-parallel gradients with eager ones", free=True
    )
    deterministic: bool = key(
        False, "only GPU algorithms that give the same bits, which are slower", "clock", free=True
    )
    hang_s: float | None = key(
        300.0,
        "seconds without progress (and at least five median steps) after which the attempt ends "
        "as hung; null: never",
        free=True,
        unit="s",
        gt=0,
    )
    ema_decay: float | None = key(
        0.9999, "EMA decay of the weights, per step; null: no EMA", "loss", ge=0, lt=1
    )
    ema_warmup: bool = key(True, "limit the EMA decay to (1 + step) / (10 + step) at first", "loss")

    @model_validator(mode="after")
    def _micro_batch_is_a_batch(self) -> "Train":
        if isinstance(self.micro_batch, int) and self.micro_batch < 1:
            raise ValueError(f"train.micro_batch {self.micro_batch}: expected 1 or more")
        return self


class ActivationCheckpointing(KeyGroup):
    """Recompute parts of the forward pass in the backward pass, to save memory."""

    mode: Literal["none", "selective", "full"] = key(
        "none", "recompute no block, some (see every), or all", "clock", short="ac"
    )
    every: int = key(2, "selective: every n-th block", "clock", unit="blocks", ge=2)


class Layout(KeyGroup):
    """The device mesh: replicate x shard x tensor is the world size."""

    replicate: int | None = key(
        None, "replicas; null: world size / (shard x tensor)", "clock", free=True, ge=1,
        short="p",
    )  # fmt: skip
    shard: int = key(
        1, "ranks that share the parameters of a replica (FSDP2)", "clock", free=True, ge=1,
        short="shard",
    )  # fmt: skip
    reshard: bool = key(
        True, "false: keep blocks gathered until the backward pass (ZeRO-2)", "clock", free=True,
    )  # fmt: skip
    tensor: int = key(
        1, "tensor-parallel ranks, which split matrix products", "clock", free=True, ge=1,
    )  # fmt: skip


class Checkpoint(KeyGroup):
    """How often a checkpoint is saved, and how many are kept."""

    every: int = key(
        500, "steps between checkpoints; the last is saved, too", free=True, unit="steps", ge=1
    )
    keep: int = key(2, "number of newest checkpoints to keep", free=True, ge=1)
    asynchronous: bool = key(
        False, "write checkpoints while training continues", "clock", free=True
    )


class Validation(KeyGroup):
    """The loss on held-out images with fixed noise, at fixed values of t evenly over 0..1."""

    every: int | None = key(
        None, "steps between validations; null: never", free=True, unit="steps", ge=1
    )
    images: int = key(256, "number of held-out images, the same every time", "validation", ge=1)
    strata: int = key(8, "values of t per image", "validation", ge=1)


class Fid(KeyGroup):
    """Frechet and kernel distance of samples of the EMA weights from a reference."""

    every: int | None = key(
        None, "steps between evaluations; null: never", free=True, unit="steps", ge=1
    )
    num: int = key(10_240, "samples; bias is corrected from 5 per feature on", free=True, ge=2)
    features: str | None = key(
        None,
        "file of Inception weights; null: the classifier of held-out digits",
        free=True,
        path="file",
    )
    reference: str | None = key(
        None, ".npz of images or statistics, image folder, or run; null: the training images",
        free=True, path="either",
    )  # fmt: skip


class Evaluate(KeyGroup):
    """Measures of samples during training, drawn by the sampler of `sample`."""

    fid: Fid = Field(default_factory=Fid)


class Profile(KeyGroup):
    """A window of steps under torch.profiler; they do not count for rates."""

    at: int | None = key(
        None, "first step of the window; null: no profile", free=True, unit="steps", ge=1
    )
    steps: int = key(3, "steps in the window", free=True, unit="steps", ge=1)


class Sample(KeyGroup):
    """Sample grids from the EMA weights during training."""

    every: int | None = key(
        None, "steps between grids; null: only after the last step", free=True, unit="steps", ge=1
    )
    per_class: int = key(4, "images per class in a grid", free=True, ge=1)
    sampler: Literal["euler", "heun", "ddim"] = key(
        "euler", "euler or heun for flow, ddim for ddpm", free=True
    )
    steps: int = key(50, "sampler steps", free=True, ge=1)
    guidance: float = key(
        2.0, "scale of classifier-free guidance; 1 is off", free=True, unit="scale", ge=1
    )
    guidance_low: float = key(
        0.0, "least t at which guidance acts (Kynkaanniemi et al. 2024)", free=True, ge=0, le=1
    )
    guidance_high: float = key(1.0, "largest t at which guidance acts", free=True, ge=0, le=1)
    classes: int = key(10, "most classes in a grid", free=True, ge=1)

    @model_validator(mode="after")
    def _interval_is_not_empty(self) -> "Sample":
        if self.guidance_low > self.guidance_high:
            raise ValueError("sample.guidance_low must not be above sample.guidance_high")
        return self


class Log(KeyGroup):
    """How often metrics are recorded, and where."""

    every: int = key(10, "steps between records", free=True, unit="steps", ge=1)
    tensorboard: bool = key(True, "also write TensorBoard events", free=True)


class Resources(KeyGroup):
    """The resources that the launcher and `env/interactive.sh` request from the cluster."""

    gpu: str | None = key(
        None, "GPU type, as in configs/gpus.yaml; null: any", "resources", free=True, short=""
    )
    nodes: int = key(1, "number of nodes", "resources", free=True, ge=1, short="n")
    gpus_per_node: int = key(1, "GPUs per node", "resources", free=True, ge=0, short="g")
    ranks_per_node: int | None = key(
        None,
        "ranks per node without GPUs of Slurm; null: a GPU each, else 1",
        "resources clock",
        free=True,
        ge=1,
    )
    cpus_per_gpu: int = key(8, "CPU cores per GPU", "resources", free=True, ge=1)
    memory_gb: int | None = key(
        None, "host memory per node; null: the site's", "resources", free=True, unit="GB", ge=1
    )
    hours: float = key(4.0, "time limit of the job", "resources", free=True, unit="h", gt=0)

    @property
    def world(self) -> int:
        """The world size: the number of ranks that these resources run."""
        return self.nodes * (self.gpus_per_node or self.ranks_per_node or 1)

    @property
    def gpu_hours(self) -> float:
        """GPUs times the time limit: the most that a run can cost."""
        return self.nodes * self.gpus_per_node * self.hours
