"""Estimate memory, the largest micro batch and images per second on each GPU, and what fits."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from configs.checks.batch import BatchLayout, divide, micro_batches
from configs.errors import ConfigError
from configs.gpus import Gpu, named_gpu
from configs.schema import Pretrain, Run
from train.forecast.memory import GIB, Memory, dit_memory, dit_parameters
from train.forecast.query import ForecastQuery
from train.forecast.roofline import StepTime, step_time
from train.model.flops import dit_macs

Kind = TypeVar("Kind", bound=Run)
MemoryOf = Callable[[Pretrain, BatchLayout], Memory]


@dataclass(frozen=True, kw_only=True)
class GpuEstimate:
    """The estimate for one GPU: GiB by kind with `micro_batch`, and the largest micro batch.

    `images_per_s` counts all ranks. It and `step_s` are None if the run does not fit; then `reason`
    says why, and `fix` names the keys that would make it fit.
    """

    gib: dict[str, float]
    capacity_gib: float
    micro_batch: int
    max_micro_batch: int
    images_per_s: float | None
    step_s: StepTime | None
    fits: bool
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The answer to a query; `gpus` has the names of the query as keys."""

    config: str
    world: int
    parameters: int
    macs: dict[str, int]
    gpus: dict[str, GpuEstimate]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with `gmacs_per_image` and the full name of each GPU as `type`."""
        plain = asdict(self)
        for name, estimate in plain["gpus"].items():
            estimate["type"] = named_gpu(name)[0]
        return {**plain, "gmacs_per_image": sum(self.macs.values()) / 1e9}


def forecast(query: ForecastQuery) -> Forecast:
    """Return the forecast for a DiT, in closed form. Raise `ConfigError` for a U-Net."""
    if query.config.model.family != "dit":
        raise ConfigError(
            f"{query.source}: model.family {query.config.model.family}: the memory of a U-Net has "
            "no closed form; add --exact"
        )
    parameters, macs = dit_parameters(query.config), dit_macs(query.config)
    return forecast_with(query, parameters=parameters, macs=macs, memory_of=dit_memory)


def forecast_with(
    query: ForecastQuery, *, parameters: int, macs: dict[str, int], memory_of: MemoryOf
) -> Forecast:
    """Return the forecast for a network whose memory on one rank is `memory_of(config, layout)`."""
    return Forecast(
        config=query.source,
        world=query.world,
        parameters=parameters,
        macs=macs,
        gpus={
            name: estimate_gpu(query, name, macs=macs, memory_of=memory_of) for name in query.gpus
        },
    )


def capacity_bytes(gpu: Gpu) -> float:
    """Return the memory of a GPU, as CUDA reports it."""
    return gpu.memory_gb * 1e9


def estimate_gpu(
    query: ForecastQuery, name: str, *, macs: dict[str, int], memory_of: MemoryOf = dit_memory
) -> GpuEstimate:
    """Return the estimate for one GPU. Raise `ConfigError` if the batch does not divide."""
    gpu = query.gpus[name]
    largest = _largest_divisor(query, gpu, memory_of)
    layout = divide(query.config, world=query.world, tuned=largest or query.config.objective.group)
    memory = memory_of(query.config, layout)
    fits = memory.total <= capacity_bytes(gpu)
    reason, fix = (None, None) if fits else _reason_and_fix(query, gpu, memory, layout, largest)
    step = step_time(query.config, layout, memory=memory, gpu=gpu, macs=macs)
    if fits and step is None:
        fits = False
        reason = f"it has no arithmetic for train.precision {query.config.train.precision}"
        fix = "train.precision=fp16"
    return GpuEstimate(
        gib={name: size / GIB for name, size in [*asdict(memory).items(), ("total", memory.total)]},
        capacity_gib=capacity_bytes(gpu) / GIB,
        micro_batch=layout.micro_batch,
        max_micro_batch=largest_micro_batch(query, gpu, memory_of),
        images_per_s=query.config.train.global_batch / step.value if fits and step else None,
        step_s=step if fits else None,
        fits=fits,
        reason=reason,
        fix=fix,
    )


def largest_micro_batch(query: ForecastQuery, gpu: Gpu, memory_of: MemoryOf = dit_memory) -> int:
    """Return the largest micro batch that fits, by bisection; 0 if not even 1 does.

    The size need not divide the global batch; the accumulation stays that of the config.
    """
    layout = divide(query.config, world=query.world)

    def fits(size: int) -> bool:
        candidate = dataclasses.replace(layout, micro_batch=size)
        return memory_of(query.config, candidate).total <= capacity_bytes(gpu)

    low, high = 0, 1
    while fits(high) and high < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest_divisor(query: ForecastQuery, gpu: Gpu, memory_of: MemoryOf) -> int | None:
    """Return the largest micro batch that fits and divides the images of a data rank."""
    config = changed(query.config, {"train.micro_batch": "auto"})
    images = divide(config, world=query.world).micro_batch
    for size in reversed(micro_batches(config, images)):
        layout = divide(config, world=query.world, tuned=size)
        if memory_of(config, layout).total <= capacity_bytes(gpu):
            return size
    return None


def _reason_and_fix(
    query: ForecastQuery, gpu: Gpu, memory: Memory, layout: BatchLayout, largest: int | None
) -> tuple[str, str]:
    capacity = f"{capacity_bytes(gpu) / GIB:.0f} GiB"
    if largest:
        return (
            f"micro batch {layout.micro_batch} takes {memory.total / GIB:.1f} GiB of {capacity}",
            f"train.micro_batch={largest}",
        )
    constant = memory.parameters + memory.gradients + memory.optimizer + memory.average
    reason = (
        f"not even one image fits into {capacity}: parameters, gradients, optimizer state and EMA "
        f"take {constant / GIB:.0f} GiB on every rank"
    )
    if query.config.model.family != "dit":
        return reason, "layout.shard, a smaller model, or a GPU with more memory"
    return reason, _fix(query, gpu)


def _fix(query: ForecastQuery, gpu: Gpu) -> str:
    """Return the first of several changes with which one image per rank fits."""
    for changes, ranks in _candidate_changes(query):
        config = changed(query.config, changes | {"layout.replicate": None})
        try:
            layout = divide(config, world=ranks, tuned=config.objective.group)
        except ConfigError:
            continue
        if dit_memory(config, layout).total <= capacity_bytes(gpu):
            overrides = " ".join(f"{name}={value}" for name, value in changes.items())
            return overrides if ranks == query.world else f"{overrides} on {ranks} GPUs"
    return "a smaller model, or a GPU with more memory"


def _candidate_changes(query: ForecastQuery) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield changes of keys and a number of ranks, the cheapest first."""
    full, no_ema = {"activation_checkpointing.mode": "full"}, {"train.ema_decay": None}
    one_image = {"train.micro_batch": 1}
    world = query.world
    for ranks in (world, *(2**power for power in range(1, 11) if 2**power > world)):
        shard = {"layout.shard": ranks // query.config.layout.tensor}
        layouts = [{}, shard] if ranks == world else [shard]
        for more in ({}, full, full | no_ema):
            for layout in layouts:
                if layout | more:
                    yield one_image | layout | more, ranks


def changed(config: Kind, changes: dict[str, Any]) -> Kind:
    """Return a copy of a config with other values of keys `group.key`."""
    for name, value in changes.items():
        group, _, leaf = name.partition(".")
        inner = getattr(config, group).model_copy(update={leaf: value})
        config = config.model_copy(update={group: inner})
    return config
