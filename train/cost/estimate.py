"""What fits on each GPU, with which micro batch, and how long a step takes; needs no torch."""

from dataclasses import dataclass
from typing import Any, TypeVar

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.gpus import Gpu, named_gpu
from configs.schema import Run
from train.cost.line import Memory
from train.cost.memory import GIB, overhead, pretrain_memory
from train.cost.query import CostQuery
from train.cost.step_time import StepTime, step_time

Kind = TypeVar("Kind", bound=Run)


@dataclass(frozen=True, kw_only=True)
class GpuEstimate:
    """The estimate for one GPU: GiB by kind with `micro_batch`, and the largest that fits.

    `hours` counts all steps. It and `step_s` are None if the run does not fit; then `reason` says
    why, and `fix` names keys that would make it fit.
    """

    type: str
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
    """The answer to a query; `gpus` has the names of the query as keys."""

    config: str
    world: int
    parameters: int
    gpus: dict[str, GpuEstimate]


def estimate(query: CostQuery) -> CostEstimate:
    """Return the estimate for each GPU. Raise `ConfigError` if the batch does not divide."""
    found = {name: _Fit(query, gpu).estimate(name) for name, gpu in query.gpus.items()}
    layout = divide(query.config, world=query.world, tuned=1)
    numbers = pretrain_memory(query.config, layout).numbers
    return CostEstimate(
        config=query.source, world=query.world, parameters=round(numbers), gpus=found
    )


def total_bytes(memory: Memory, layout: BatchLayout) -> float:
    """Return the memory that the GPU must have."""
    return memory.peak + overhead(layout, peak=memory.peak)


def largest_that_divides(config: Any, *, world: int, capacity: float) -> int | None:
    """Return the largest micro batch that fits and divides the images of a data rank, or None."""
    config = changed(config, {"train.micro_batch": "auto"})
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


class _Fit:
    """How a run fits on one type of GPU."""

    def __init__(self, query: CostQuery, gpu: Gpu) -> None:
        self._query, self._config, self._gpu = query, query.config, gpu
        self._capacity = gpu.memory_gb * 1e9

    def estimate(self, name: str) -> GpuEstimate:
        config, world = self._config, self._query.world
        layout = divide(config, world=world, tuned=1)
        if config.train.micro_batch == "auto":
            layout = divide(config, world=world, tuned=self._largest_divisor() or 1)
        memory = pretrain_memory(config, layout)
        reason, fix = self._misfit(memory, layout)
        step = None
        if reason is None:
            step = step_time(config, flops=memory.flops, gpu=self._gpu)
        if step is None and reason is None:
            reason = f"it has no arithmetic for train.precision {config.train.precision}"
            fix = "train.precision=fp32"
        total = total_bytes(memory, layout)
        kinds = {kind: size for kind, size in vars(memory).items() if kind not in _COUNTS}
        kinds |= {"overhead": total - memory.peak, "total": total}
        return GpuEstimate(
            type=named_gpu(name)[0],
            gib={kind: size / GIB for kind, size in kinds.items()},
            capacity_gib=self._capacity / GIB,
            micro_batch=layout.micro_batch,
            max_micro_batch=self._largest_divisor() or 0,
            step_s=step,
            hours=config.train.steps * step.value / 3600 if step else None,
            fits=reason is None,
            reason=reason,
            fix=fix,
        )

    def _total(self, config: Any, layout: BatchLayout) -> float:
        return total_bytes(pretrain_memory(config, layout), layout)

    def _largest_divisor(self) -> int | None:
        return largest_that_divides(
            self._config,
            world=self._query.world,
            capacity=self._capacity,
        )

    def _misfit(self, memory: Memory, layout: BatchLayout) -> tuple[str | None, str | None]:
        """Return why a run does not fit and what would help, or None twice."""
        total, capacity = total_bytes(memory, layout), f"{self._capacity / GIB:.0f} GiB"
        if total <= self._capacity:
            return None, None
        if largest := self._largest_divisor():
            taken = f"micro batch {layout.micro_batch} takes {total / GIB:.1f} GiB of {capacity}"
            return taken, f"train.micro_batch={largest}"
        constant = memory.parameters + memory.gradients + memory.optimizer + memory.average
        reason = (
            f"not even one image fits into {capacity}: parameters, gradients, optimizer state and "
            f"EMA take {constant / GIB:.0f} GiB on every rank"
        )
        return reason, _SMALLER


# Fields of `Memory` that are no bytes.
_COUNTS = ("numbers", "flops")
# What helps a run of which not even one image fits.
_SMALLER = (
    "a larger layout.shard, activation_checkpointing.mode=full, a smaller model, or a GPU with "
    "more memory, perhaps"
)


def changed(config: Kind, changes: dict[str, Any]) -> Kind:
    """Return a copy of a config with other values of keys `group.key`."""
    for name, value in changes.items():
        group, _, leaf = name.partition(".")
        inner = getattr(config, group).model_copy(update={leaf: value})
        config = config.model_copy(update={group: inner})
    return config
