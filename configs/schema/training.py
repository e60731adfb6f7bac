"""How the network is trained: optimizer, batch, layout over ranks, and what is kept on the way."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import Group, key


class Optimizer(Group):
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


class Train(Group):
    """Length, batch and arithmetic of the training loop."""

    steps: int = key(1000, "optimizer steps", "loss", free=True, unit="steps", ge=1)
    global_batch: int = key(256, "images per step, over all ranks", "loss", "clock", ge=1)
    micro_batch: int | None = key(
        None,
        "images per rank and backward; null: the whole share of a rank",
        "clock",
        free=True,
        ge=1,
    )
    precision: Literal["fp32", "bf16"] = key(
        "bf16", "fp32, or bf16 autocast over fp32 parameters", "loss", "clock"
    )
    compile: bool = key(False, "torch.compile of each block", "clock")
    ema_decay: float = key(0.9999, "decay of the averaged weights, per step", "loss", ge=0, lt=1)
    ema_warmup: bool = key(
        True, "let the decay grow as (1 + step) / (10 + step), up to ema_decay", "loss"
    )


class Layout(Group):
    """How ranks share the work: replicate x shard is the world size."""

    replicate: int | None = key(
        None, "data-parallel replicas; null: all ranks / shard", "clock", free=True, ge=1
    )
    shard: int = key(
        1, "ranks that a replica's parameters are sharded over (FSDP2)", "clock", free=True, ge=1
    )


class Checkpoint(Group):
    """How often the state is saved, and how many saves stay."""

    every: int = key(
        500, "steps between saves; the last step is saved too", free=True, unit="steps", ge=1
    )
    keep: int = key(2, "newest saves that are kept", free=True, ge=1)


class Sample(Group):
    """Sample grids drawn from the EMA weights during training."""

    every: int | None = key(
        None,
        "steps between grids; null: none but after the last step",
        free=True,
        unit="steps",
        ge=1,
    )
    per_class: int = key(4, "images per class in a grid", free=True, ge=1)
    steps: int = key(50, "steps of the sampler", free=True, ge=1)
    guidance: float = key(2.0, "classifier-free guidance; 1 is none", free=True, unit="scale", ge=1)
    classes: int = key(10, "at most so many classes in a grid", free=True, ge=1)


class Log(Group):
    """What is recorded, and who speaks on the console."""

    every: int = key(10, "steps per record", free=True, unit="steps", ge=1)
    tensorboard: bool = key(True, "also write TensorBoard events", free=True)
    console_ranks: list[int] = key([0], "ranks that print to the console", free=True)

    @model_validator(mode="after")
    def _ranks_are_ranks(self) -> "Log":
        if any(rank < 0 for rank in self.console_ranks):
            raise ValueError("log.console_ranks holds rank numbers, from 0 up")
        return self


class Resources(Group):
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
