"""What a cell can expect of each GPU: its memory, the largest micro batch, images/s, a verdict."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.gpus import Gpu, named_gpu
from configs.schema import Pretrain
from train.forecast.memory import GIB, Memory, dit_memory
from train.forecast.parameters import dit_parameters
from train.forecast.query import ForecastQuery
from train.forecast.roofline import images_per_s
from train.model.flops import dit_macs

MemoryOf = Callable[[Pretrain, BatchLayout], Memory]


@dataclass(frozen=True, kw_only=True)
class GpuEstimate:
    """One GPU: GiB by kind with `micro_batch`, and what is possible at most.

    `images_per_s` is of all ranks, None where the cell does not fit. `reason` says why it does
    not, `fix` which keys would help.
    """

    gib: dict[str, float]
    capacity_gib: float
    micro_batch: int
    max_micro_batch: int
    images_per_s: float | None
    fits: bool
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A cell's numbers; `gpus` by the names they were asked by."""

    config: str
    world: int
    parameters: int
    macs: dict[str, int]
    gpus: dict[str, GpuEstimate]

    def to_json(self) -> dict[str, Any]:
        """Plain values, with `gmacs_per_image`, and of each GPU its full name as `type`."""
        plain = asdict(self)
        for name, outlook in plain["gpus"].items():
            outlook["type"] = named_gpu(name)[0]
        return {**plain, "gmacs_per_image": sum(self.macs.values()) / 1e9}


def forecast(cell: ForecastQuery) -> Forecast:
    """The outlook of a DiT on each GPU, in closed form."""
    if cell.config.model.family != "dit":
        raise ConfigError(
            f"{cell.source}: model.family {cell.config.model.family}: the memory of a U-Net has "
            "no closed form; add --exact"
        )
    macs = dit_macs(cell.config)
    return Forecast(
        config=cell.source,
        world=cell.world,
        parameters=dit_parameters(cell.config),
        macs=macs,
        gpus={name: judge(cell, gpu, macs=macs) for name, gpu in cell.gpus.items()},
    )


def capacity(gpu: Gpu) -> float:
    """Bytes of a GPU. Data sheets count in 10^9 or 2^30: the smaller, so that it is there."""
    return gpu.memory_gb * 1e9


def judge(
    cell: ForecastQuery, gpu: Gpu, *, macs: dict[str, int], memory_of: MemoryOf = dit_memory
) -> GpuEstimate:
    """The outlook of a cell on one GPU; `ConfigError` where the batch does not divide."""
    smaller = _largest_divisor(cell, gpu, memory_of)
    layout = divide(cell.config, world=cell.world, tuned=smaller or 1)
    memory = memory_of(cell.config, layout)
    fits = memory.total <= capacity(gpu)
    reason, fix = (None, None) if fits else _why_not(cell, gpu, memory, layout, smaller)
    rate = images_per_s(cell.config, layout, memory=memory, gpu=gpu, macs=macs)
    return GpuEstimate(
        gib={name: size / GIB for name, size in [*asdict(memory).items(), ("total", memory.total)]},
        capacity_gib=capacity(gpu) / GIB,
        micro_batch=layout.micro_batch,
        max_micro_batch=largest_micro_batch(cell, gpu, memory_of),
        images_per_s=rate if fits else None,
        fits=fits,
        reason=reason,
        fix=fix,
    )


def largest_micro_batch(cell: ForecastQuery, gpu: Gpu, memory_of: MemoryOf = dit_memory) -> int:
    """The largest micro batch that fits, by bisection; 0 where not even 1 does.

    Any number is tried, whether it divides the global batch or not, with as many microbatches to
    a step as the config's own layout has.
    """
    layout = divide(cell.config, world=cell.world)

    def fits(size: int) -> bool:
        tried = BatchLayout(
            replicate=layout.replicate,
            shard=layout.shard,
            tensor=layout.tensor,
            micro_batch=size,
            accumulation=layout.accumulation,
        )
        return memory_of(cell.config, tried).total <= capacity(gpu)

    low, high = 0, 1
    while fits(high) and high < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest_divisor(cell: ForecastQuery, gpu: Gpu, memory_of: MemoryOf) -> int | None:
    """The largest micro batch that fits and divides the share of a data rank."""
    auto = cell.config.train.model_copy(update={"micro_batch": "auto"})
    config = cell.config.model_copy(update={"train": auto})
    for size in reversed(divisors(divide(config, world=cell.world).micro_batch)):
        layout = divide(config, world=cell.world, tuned=size)
        if memory_of(config, layout).total <= capacity(gpu):
            return size
    return None


def divisors(number: int) -> list[int]:
    """What divides a number, from 1 up."""
    return [size for size in range(1, number + 1) if number % size == 0]


def _why_not(
    cell: ForecastQuery, gpu: Gpu, memory: Memory, layout: BatchLayout, smaller: int | None
) -> tuple[str, str]:
    room = f"{capacity(gpu) / GIB:.0f} GiB"
    if smaller:
        return (
            f"micro batch {layout.micro_batch} takes {memory.total / GIB:.1f} GiB of {room}",
            f"train.micro_batch={smaller}",
        )
    kept = memory.parameters + memory.gradients + memory.optimizer + memory.average
    reason = (
        f"not even one image fits into {room}: weights, gradients, moments and average take "
        f"{kept / GIB:.0f} GiB on every rank"
    )
    if cell.config.model.family != "dit":
        return reason, "layout.shard, a smaller model, or a GPU with more memory"
    return reason, _fix(cell, gpu)


def _fix(cell: ForecastQuery, gpu: Gpu) -> str:
    """The first of some changes with which an image would fit."""
    for changes, ranks in _changes(cell):
        config = _changed(cell.config, changes)
        try:
            layout = divide(config, world=ranks, tuned=1)
        except ConfigError:
            continue
        if dit_memory(config, layout).total <= capacity(gpu):
            said = " ".join(f"{name}={value}" for name, value in changes.items())
            return said if ranks == cell.world else f"{said} on {ranks} GPUs"
    return "a smaller model, or a GPU with more memory"


def _changes(cell: ForecastQuery) -> Iterator[tuple[dict[str, Any], int]]:
    """Changes of keys and ranks, those that cost least first."""
    full, none = {"activation_checkpointing.mode": "full"}, {"train.ema_decay": None}
    small = {"train.micro_batch": 1}
    for ranks in (cell.world, *(2**power for power in range(1, 11) if 2**power > cell.world)):
        shard = {"layout.shard": ranks // cell.config.layout.tensor}
        layouts = [{}, shard] if ranks == cell.world else [shard]
        for more in ({}, full, full | none):
            for layout in layouts:
                if layout | more:
                    yield small | layout | more, ranks


def _changed(config: Pretrain, changes: dict[str, Any]) -> Pretrain:
    for name, value in changes.items():
        group, _, leaf = name.partition(".")
        inner = getattr(config, group).model_copy(update={leaf: value})
        config = config.model_copy(update={group: inner})
    layout = config.layout.model_copy(update={"replicate": None})
    return config.model_copy(update={"layout": layout})
