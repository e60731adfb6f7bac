"""Estimate what fits on each GPU, with which micro batch, and how long a step takes.

This needs no torch.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.gpus import load_gpus, named_gpu
from configs.schema import Pretrain
from train.cost.line import Memory
from train.cost.memory import GIB, overhead, pretrain_memory
from train.cost.step_time import StepTime, step_time

# Fields of `Memory` that are no bytes.
_COUNTS = ("numbers", "flops")
# What helps a run of which not even one image fits.
_SMALLER = (
    "a larger layout.shard, activation_checkpointing.mode=full, a smaller model, or a GPU with "
    "more memory, perhaps"
)


@dataclass(frozen=True, kw_only=True)
class GpuEstimate:
    """The estimate for one GPU: GiB by kind with `micro_batch`, and the largest that fits.

    `hours` counts all steps. It and `step_s` are None if the run does not fit; then `reason` says
    why, and `fix` names keys that would make it fit.
    """

    gib: dict[str, float]
    capacity_gib: float
    micro_batch: int
    max_micro_batch: int
    step_s: StepTime | None
    hours: float | None
    fits: bool
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """The cost of a run of `world` ranks, by the name of the GPU that it asks for, or of all."""

    world: int
    parameters: int
    gpus: dict[str, GpuEstimate]


def estimate(config: Pretrain) -> CostEstimate:
    """Return the estimate for each GPU. Raise `ConfigError` if the batch does not divide."""
    world = config.resources.world
    numbers = pretrain_memory(config, divide(config, world=world, tuned=1)).numbers
    names = [config.resources.gpu] if config.resources.gpu else list(load_gpus())
    found = {name: _estimate_on(name, config) for name in names}
    return CostEstimate(world=world, parameters=round(numbers), gpus=found)


def total_bytes(memory: Memory, layout: BatchLayout) -> float:
    """Return the memory that the GPU must have."""
    return memory.peak + overhead(layout, peak=memory.peak)


def largest_that_divides(config: Pretrain, *, world: int, capacity: float) -> int | None:
    """Return the largest micro batch that fits and divides the images of a data rank, or None."""
    train = config.train.model_copy(update={"micro_batch": "auto"})
    config = config.model_copy(update={"train": train})
    images = divide(config, world=world, tuned=1).accumulation
    for size in range(images, 0, -1):
        if images % size:
            continue
        try:
            layout = divide(config, world=world, tuned=size)
        except ConfigError:  # gns.enabled needs two microbatches
            continue
        if total_bytes(pretrain_memory(config, layout), layout) <= capacity:
            return size
    return None


def _estimate_on(name: str, config: Pretrain) -> GpuEstimate:
    """Return how a run fits on one type of GPU."""
    gpu = named_gpu(name)
    world, capacity = config.resources.world, gpu.memory_gb * 1e9
    largest = largest_that_divides(config, world=world, capacity=capacity)
    layout = divide(config, world=world, tuned=largest or 1)
    memory = pretrain_memory(config, layout)
    total = total_bytes(memory, layout)
    reason = fix = step = None
    if total > capacity and largest:
        taken = f"{total / GIB:.1f} GiB of {capacity / GIB:.0f} GiB"
        reason = f"micro batch {layout.micro_batch} takes {taken}"
        fix = f"train.micro_batch={largest}"
    elif total > capacity:
        constant = memory.parameters + memory.gradients + memory.optimizer + memory.average
        reason = (
            f"not even one image fits into {capacity / GIB:.0f} GiB: parameters, gradients, "
            f"optimizer state and EMA take {constant / GIB:.0f} GiB on every rank"
        )
        fix = _SMALLER
    elif not (step := step_time(config, layout, memory=memory, gpu=name, peaks=gpu)):
        reason = f"it has no arithmetic for train.precision {config.train.precision}"
        fix = "train.precision=fp32"
    kinds = {kind: size for kind, size in vars(memory).items() if kind not in _COUNTS}
    kinds |= {"overhead": total - memory.peak, "total": total}
    return GpuEstimate(
        gib={kind: size / GIB for kind, size in kinds.items()},
        capacity_gib=capacity / GIB,
        micro_batch=layout.micro_batch,
        max_micro_batch=largest or 0,
        step_s=step,
        hours=config.train.steps * step.value / 3600 if step else None,
        fits=reason is None,
        reason=reason,
        fix=fix,
    )
