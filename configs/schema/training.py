"""How the network is trained: optimizer, batch, layout over ranks, and what is kept on the way."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import KeyGroup, key


class Optimizer(KeyGroup):
    """AdamW; the learning rate warms up, stays, and falls over the last steps."""

    lr: float = key(1e-4, "learning rate after warm-up", "loss", gt=0)
    warmup_steps: int = key(0, "steps of linear warm-up from 0", "loss", unit="steps", ge=0)
    decay: float = key(
        0.0, "last share of train.steps, over which the rate falls linearly", "loss", ge=0, le=1
    )
    decay_to: float = key(0.0, "rate after the last step, as a share of lr", "loss", ge=0, le=1)
    beta1: float = key(0.9, "decay of the first moment", "loss", ge=0, lt=1)
    beta2: float = key(0.95, "decay of the second moment", "loss", ge=0, lt=1)
    eps: float = key(1e-8, "added to the root of the second moment", "loss", gt=0)
    weight_decay: float = key(0.0, "decoupled decay of weight matrices", "loss", ge=0)
    clip: float | None = key(1.0, "largest gradient norm; null for none", "loss", gt=0)


class Train(KeyGroup):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(1000, "optimizer steps", "loss", free=True, unit="steps", ge=1)
    global_batch: int = key(256, "images per step, over all ranks", "loss", "clock", ge=1)
    micro_batch: int | Literal["auto"] | None = key(
        None,
        "images per data rank and backward; null: the whole share of a rank; auto: as many as fit",
        "clock",
        free=True,
    )
    precision: Literal["fp32", "bf16", "fp16"] = key(
        "bf16",
        "of the forward pass, by autocast over fp32 parameters; fp16 with loss scaling",
        "loss",
        "clock",
    )
    float8: bool = key(
        False, "matrix products of the blocks in float8 (torchao; needs SM 8.9)", "loss", "clock"
    )
    compile: bool = key(False, "torch.compile of each block", "clock")
    hang_s: float | None = key(
        60.0,
        "seconds without a move (and five median steps) after which a rank counts as hung, and "
        "the attempt ends; null: never",
        free=True,
        unit="s",
        gt=0,
    )
    ema_decay: float | None = key(
        0.9999, "decay of the averaged weights, per step; null: none are kept", "loss", ge=0, lt=1
    )
    ema_batch: int | None = key(
        None,
        "global batch that ema_decay is meant for: the decay is then taken per image",
        "loss",
        unit="images",
        ge=1,
    )
    ema_warmup: bool = key(
        True, "let the decay grow as (1 + step) / (10 + step), up to ema_decay", "loss"
    )

    @model_validator(mode="after")
    def _micro_batch_is_a_batch(self) -> "Train":
        if isinstance(self.micro_batch, int) and self.micro_batch < 1:
            raise ValueError(f"train.micro_batch {self.micro_batch}: expected 1 or more")
        return self


class ActivationCheckpointing(KeyGroup):
    """What of the forward pass is computed again in the backward pass, to save memory."""

    mode: Literal["none", "selective", "full"] = key(
        "none", "none, some (see every) or all of the blocks", "clock"
    )
    every: int | None = key(
        2,
        "selective: every n-th block; null: in all blocks all but matrix products and attention",
        "clock",
        unit="blocks",
        ge=2,
    )


class Layout(KeyGroup):
    """How ranks share the work: replicate x shard x tensor is the world size."""

    replicate: int | None = key(
        None,
        "data-parallel replicas; null: all ranks / (shard x tensor)",
        "clock",
        free=True,
        ge=1,
    )
    shard: int = key(
        1, "ranks that a replica's parameters are sharded over (FSDP2)", "clock", free=True, ge=1
    )
    tensor: int = key(
        1, "ranks that split every matrix product of a block among them", "clock", free=True, ge=1
    )


class Checkpoint(KeyGroup):
    """How often the state is saved, and how many saves stay."""

    every: int = key(
        500, "steps between saves; the last step is saved too", free=True, unit="steps", ge=1
    )
    keep: int = key(2, "newest saves that are kept", free=True, ge=1)
    asynchronous: bool = key(False, "write while training goes on", "clock", free=True)


class Validation(KeyGroup):
    """The loss on held-out images with fixed noise, at fixed times spread evenly over 0..1."""

    every: int | None = key(None, "steps between validations", free=True, unit="steps", ge=1)
    images: int = key(256, "held-out images, the same ones every time", "loss", ge=1)
    strata: int = key(8, "times that each image is judged at", "loss", ge=1)


class Profile(KeyGroup):
    """A window of steps under torch.profiler; no rate is taken from them."""

    at: int | None = key(None, "step before which the window opens", free=True, unit="steps", ge=1)
    steps: int = key(3, "length of the window", free=True, unit="steps", ge=1)
    memory: bool = key(False, "also a snapshot of the GPU's memory", free=True)


class Sample(KeyGroup):
    """Sample grids drawn from the EMA weights during training."""

    every: int | None = key(
        None,
        "steps between grids; null: none but after the last step",
        free=True,
        unit="steps",
        ge=1,
    )
    per_class: int = key(4, "images per class in a grid", free=True, ge=1)
    sampler: Literal["euler", "heun", "ddim"] = key(
        "euler", "euler or heun for flow, ddim for ddpm", free=True
    )
    steps: int = key(50, "steps of the sampler", free=True, ge=1)
    guidance: float = key(2.0, "classifier-free guidance; 1 is none", free=True, unit="scale", ge=1)
    classes: int = key(10, "at most so many classes in a grid", free=True, ge=1)


class Log(KeyGroup):
    """What is recorded, and who speaks on the console."""

    every: int = key(10, "steps per record", free=True, unit="steps", ge=1)
    tensorboard: bool = key(True, "also write TensorBoard events", free=True)
    console_ranks: list[int] = key([0], "ranks that print to the console", free=True)

    @model_validator(mode="after")
    def _ranks_are_ranks(self) -> "Log":
        if any(rank < 0 for rank in self.console_ranks):
            raise ValueError("log.console_ranks holds rank numbers, from 0 up")
        return self


class Resources(KeyGroup):
    """What is asked of the cluster, by the launcher and `env/interactive.sh` only."""

    gpu: str | None = key(None, "GPU type, as in configs/gpus.yaml", "resources", free=True)
    nodes: int = key(1, "nodes", "resources", free=True, ge=1)
    gpus_per_node: int = key(1, "GPUs per node", "resources", free=True, ge=0)
    ranks_per_node: int | None = key(
        None,
        "ranks per node where Slurm gave no GPUs; null: GPUs of the machine, else 1",
        "resources",
        "clock",
        free=True,
        ge=1,
    )
    cpus_per_gpu: int = key(8, "CPU cores per GPU", "resources", free=True, ge=1)
    memory_gb: int | None = key(
        None,
        "host memory per node; null: the site's default",
        "resources",
        free=True,
        unit="GB",
        ge=1,
    )
    hours: float = key(4.0, "time limit", "resources", free=True, unit="h", gt=0)

    @property
    def world(self) -> int:
        """The world size: the number of ranks that these resources run."""
        return self.nodes * (self.gpus_per_node or self.ranks_per_node or 1)
