"""Why training is slower than its GPUs allow: one rule for `status`, `speed` and `report`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.attempt.gpu_sampler import THROTTLES
from configs.run.gpu_log import GpuLog

Means = Mapping[str, float]
# Smaller shares of the time, and clocks nearer to the highest one, are usual.
MIN_DATA, MIN_HOST_BOUND, MIN_IDLE, MIN_THROTTLED = 0.15, 0.5, 0.05, 0.1
LOW_CLOCK, MIN_BUSY = 0.9, 0.5
_FIXES = {
    "power": "its limit is {power_limit_w:.0f} W, by default {default_power_limit_w:.0f} W",
    "heat": "leave out the node (--exclude), and tell the site that it is not cooled",
    "hardware": "leave out the node (--exclude), and tell the site: power supply or cooling",
    "setting": "somebody has set its clocks: nvidia-smi -q -d CLOCK",
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """The limits of a stretch of training; what is unknown is None or absent.

    `data` is the share of the time that waits for the loader, `host_bound` that of the steps for
    whose launch a GPU waited, `busy` that of the time in which the GPUs ran a kernel. `power_w` is
    that of all GPUs. `gpu` is the slowest by its clock, with its facts and mean `readings`.
    """

    data: float | None = None
    host_bound: float | None = None
    busy: float | None = None
    power_w: float | None = None
    gpu: str = ""
    readings: Means = field(default_factory=dict)
    is_shared: bool = False


def gpu_load(logs: Sequence[GpuLog], weigh: Callable[[Means], float], **known: Any) -> Load:
    """Return the load over the rows, each for `weigh` seconds, with the fields that are known."""
    read = [(log, means) for log in logs if (means := _means(log, weigh))]
    if not read:
        return Load(**known)
    busy = [means["busy"] for _, means in read if "busy" in means]
    slowest, readings = min(read, key=lambda one: one[1].get("relative_clock", 2))
    return Load(
        busy=sum(busy) / len(busy) if busy else None,
        power_w=sum(means.get("power_w", 0.0) for _, means in read) or None,
        gpu=f"GPU {slowest.index} of {slowest.node}",
        readings=readings,
        is_shared=any(log.whole_card == "shared" for log in logs),
        **known,
    )


def _means(log: GpuLog, weigh: Callable[[Means], float]) -> dict[str, float]:
    """Return the facts and the weighted mean of each reading; nothing if no row has weight."""
    rows = [(weight, row) for row in log.rows if (weight := weigh(row)) > 0]
    found = dict(log.facts) if rows else {}
    for name in {name for _, row in rows for name in row}:
        own = [(weight, row[name]) for weight, row in rows if name in row]
        found[name] = sum(weight * value for weight, value in own) / sum(w for w, _ in own)
    if found.get("sm_mhz") and found.get("max_sm_mhz"):
        found["relative_clock"] = found["sm_mhz"] / found["max_sm_mhz"]
    return found


def slowdowns(load: Load, config: Mapping[str, Any]) -> list[str]:
    """Return each cause with its evidence, and the key or the person that can change it."""
    return [*_waits(load, config), *_clocks(load)]


def _waits(load: Load, config: Mapping[str, Any]) -> Iterator[str]:
    idle, data, bound = 1 - (load.busy or 0.0), load.data or 0.0, load.host_bound
    also = "" if load.busy is None else f", GPU idle {idle:.0%} of the time"
    # A GPU that always had work did not wait, although its host did.
    has_waited = bound is None or bound >= MIN_HOST_BOUND
    if data >= MIN_DATA and has_waited and idle >= data / 2:
        workers = config.get("data.workers")
        fix = "" if workers is None else f"; raise data.workers from {workers}"
        yield f"input-bound: the loader waits {data:.0%} of the step{also}{fix}"
    elif bound is not None and has_waited and idle >= MIN_IDLE:
        of = {False: "train.compile: true, ", True: "train.compile: graphs, "}
        fix = of.get(config.get("train.compile", ""), "") if "model.width" in config else ""
        evidence = f"the GPU waits for the launch of {bound:.0%} of the steps{also}"
        yield f"host-bound: {evidence}; {fix}a larger micro batch"


def _clocks(load: Load) -> Iterator[str]:
    """Explain a clock far below the highest one, and faults of the node at any clock."""
    if load.is_shared:
        yield "shared: processes of others run on the same card, to which the readings belong"
    of = load.readings
    share, cause = max((of.get(f"throttled_{cause}", 0.0), cause) for cause in THROTTLES)
    is_throttled, clock = share >= MIN_THROTTLED, of.get("relative_clock", 1.0)
    # An idle GPU lowers its clock by itself.
    is_low = clock < LOW_CLOCK and (is_throttled or (load.busy or 0) >= MIN_BUSY)
    if not is_low and not (is_throttled and cause in ("heat", "hardware")):
        return
    ghz = [f"{of[n] / 1e3:.2f}" for n in ("sm_mhz", "max_sm_mhz") if n in of]
    text = f"clocks at {' of '.join(ghz)} GHz" if ghz else "clocks"
    if is_throttled:
        text += f", throttled by {cause} {share:.0%} of the time ({load.gpu})"
        if cause != "power" or {"power_limit_w", "default_power_limit_w"} <= of.keys():
            text += f"; {_FIXES[cause].format_map(of)}"
    yield text
