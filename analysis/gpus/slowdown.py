"""Why training is slower than its GPUs allow: one rule for `speed` and `report`."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from runs.gpu_log import THROTTLES, GpuLog

Means = Mapping[str, float]
# Smaller shares of the time, and clocks nearer to the highest one, are usual.
MIN_DATA, MIN_HOST_BOUND, MIN_IDLE, MIN_THROTTLED = 0.15, 0.5, 0.05, 0.1
LOW_CLOCK, MIN_BUSY = 0.9, 0.5
# A fault of the node, at any clock and on any of its GPUs.
_FAULTS = ("heat", "hardware")
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
    that of all GPUs. `gpus` are their names, facts and mean readings, the slowest clock first.
    """

    data: float | None = None
    host_bound: float | None = None
    busy: float | None = None
    power_w: float | None = None
    gpus: Sequence[tuple[str, Means]] = ()
    is_shared: bool = False


def gpu_load(
    attempts: Sequence[Sequence[GpuLog]], weigh: Callable[[Means], float], **known: Any
) -> Load:
    """Return the load over the rows, each for `weigh` seconds, with the fields that are known."""
    read = [[(log, means) for log in logs if (means := _means(log, weigh))] for logs in attempts]
    every = sorted(chain(*read), key=lambda one: one[1].get("relative_clock", 2))
    of_gpus = [(means["weight"], means) for _, means in every]
    power_w = _mean(of_gpus, "power_w")
    return Load(
        busy=_mean(of_gpus, "busy"),
        power_w=power_w and power_w * len(every) / sum(map(bool, read)),
        gpus=[(f"GPU {log.index} of {log.node}", means) for log, means in every],
        is_shared=any(log.whole_card == "shared" for logs in attempts for log in logs),
        **known,
    )


def _means(log: GpuLog, weigh: Callable[[Means], float]) -> dict[str, float]:
    """Return facts, mean readings, and the sum of weights; nothing if no row has weight."""
    rows = [(weight, row) for row in log.rows if (weight := weigh(row)) > 0]
    found = dict(log.facts) if rows else {}
    found |= {name: _mean(rows, name) or 0.0 for name in {n for _, row in rows for n in row}}
    if found.get("sm_mhz") and found.get("max_sm_mhz"):
        found["relative_clock"] = found["sm_mhz"] / found["max_sm_mhz"]
    return found | ({"weight": sum(weight for weight, _ in rows)} if rows else {})


def _mean(weighted: Sequence[tuple[float, Means]], name: str) -> float | None:
    own = [(weight, of[name]) for weight, of in weighted if name in of]
    return sum(weight * value for weight, value in own) / sum(w for w, _ in own) if own else None


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
        is_eager = config.get("train.compile") is False and "model.width" in config
        fix = "train.compile: true, " if is_eager else ""
        evidence = f"the GPU waits for the launch of {bound:.0%} of the steps{also}"
        yield f"host-bound: {evidence}; {fix}a larger micro batch"


def _clocks(load: Load) -> Iterator[str]:
    """Explain a clock far below the highest one, and faults of the node at any clock."""
    if load.is_shared:
        yield "shared: processes of others run on the same card, to which the readings belong"
    if fault := next(filter(None, (_throttled(*gpu, causes=_FAULTS) for gpu in load.gpus)), ""):
        yield fault
    for name, of in load.gpus[:1]:
        text = _throttled(name, of, causes=THROTTLES)
        # An idle GPU lowers its clock by itself.
        is_low = of.get("relative_clock", 1.0) < LOW_CLOCK and (
            text or (load.busy or 0) >= MIN_BUSY
        )
        if is_low and (not text or text != fault):
            yield text or _at_clock(of)


def _throttled(gpu: str, of: Means, *, causes: Iterable[str]) -> str:
    """Return the clock and the most frequent of these causes, empty if that is rare."""
    share, cause = max((of.get(f"throttled_{cause}", 0.0), cause) for cause in causes)
    if share < MIN_THROTTLED:
        return ""
    text = f"{_at_clock(of)}, throttled by {cause} {share:.0%} of the time ({gpu})"
    is_limited = of.get("power_limit_w", math.inf) < of.get("default_power_limit_w", 0.0)
    return f"{text}; {_FIXES[cause].format_map(of)}" if cause != "power" or is_limited else text


def _at_clock(of: Means) -> str:
    ghz = [f"{of[n] / 1e3:.2f}" for n in ("sm_mhz", "max_sm_mhz") if n in of]
    return f"clocks at {' of '.join(ghz)} GHz" if ghz else "clocks"
