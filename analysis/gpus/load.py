"""Why a run is slow: its waits for data and for the host, and what its GPUs did meanwhile."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.rate import MeasuredRate
from analysis.read.run_log import RunLog, kept_with_log
from runs.folder import RunFolder
from runs.gpu_log import THROTTLES, GpuLog, read_gpu_logs

Row = Mapping[str, float]
# A row of readings counts if this share of its time is steady training.
MIN_STEADY = 0.8
# Smaller shares of the time, and clocks nearer to the highest one, are usual.
MIN_DATA, MIN_HOST_BOUND, MIN_IDLE, MIN_THROTTLED, LOW_CLOCK = 0.15, 0.5, 0.05, 0.1, 0.9
# Processes of others in a smaller share of the readings are no matter.
MOST_SHARED = 0.05
# Faults of a node, for which it should be left out whatever its clocks.
_FAULTS = ("heat", "hardware")


@dataclass(frozen=True, kw_only=True)
class Load:
    """The limits of a stretch of training; what is unknown is None.

    `data` is the share of the time that waits for the loader, `host_bound` the share of the steps
    for whose launch a GPU waited, `busy` the share of the time in which the GPUs ran a kernel.
    `power_w` is the power of all GPUs. `throttled` describes the GPU whose clock was lowered for
    the largest share of the time, if that is large; `fault` is the cause if it is one of the node.
    """

    data: float | None = None
    host_bound: float | None = None
    busy: float | None = None
    power_w: float | None = None
    throttled: str | None = None
    fault: str | None = None

    def fields(self) -> dict[str, float | None]:
        """Return the load as fields of a row."""
        known = {"data_share": self.data, "host_bound": self.host_bound}
        return known | {"gpu_busy": self.busy, "power_w": self.power_w}


@kept_with_log
def gpu_logs(log: RunLog) -> Mapping[int, list[GpuLog]]:
    """Return the log of every GPU by attempt."""
    run = RunFolder(log.path)
    return {number: read_gpu_logs(run.attempt(number)) for number in run.attempts()}


def why_shared(log: RunLog) -> str | None:
    """Return that processes of others used a GPU of a run, None if they did not for long."""
    for card in (card for cards in gpu_logs(log).values() for card in cards):
        known = [row["others"] > 0 for row in card.rows if "others" in row]
        if sum(known) > max(1, MOST_SHARED * len(known)):
            return f"processes of others used GPU {card.index} of {card.node} beside {log.name}"
    return None


def steady_load(run: MeasuredRate) -> Load:
    """Return the load over the intervals that the rate is taken from."""
    log, found = run.log, run.intervals
    if run.summary is None or run.clock == "printed":
        return Load()
    last, first = found.row[run.summary.kept], found.start[run.summary.kept]
    of = {name: log.column(name) for name in ("train_s", "data_s", "host_bound", "time")}
    train_s, data_s = (
        float((of[name][last] - of[name][first]).sum()) for name in ("train_s", "data_s")
    )
    bound = of["host_bound"][last][of["host_bound"][last] >= 0]
    # The seconds of steady training up to each of these times; saves lie before an interval's own.
    seconds = of["train_s"][last] - of["train_s"][first]
    timed = found.seconds[run.summary.kept] * (log.step[last] - log.step[first])
    seconds = np.where(np.isnan(seconds), timed, seconds)
    spans = np.stack([of["time"][last] - seconds, of["time"][last]], axis=1)
    times = np.maximum.accumulate(spans.ravel())
    sums = np.stack([np.cumsum(seconds) - seconds, np.cumsum(seconds)], axis=1).ravel()

    def steady_s(row: Row) -> float:
        begin, end = np.interp([row["time"] - row["span_s"], row["time"]], times, sums)
        return float(end - begin) if end - begin >= MIN_STEADY * row["span_s"] else 0.0

    attempts = np.unique(found.attempt[run.summary.kept]).tolist()
    read = [_weighted(gpu_logs(log).get(attempt, []), steady_s) for attempt in attempts]
    every = [one for own in read for one in own]
    rows = [one for _, weighted in every for one in weighted]
    power_w, (throttled, fault) = _mean(rows, "power_w"), _throttled(every)
    return Load(
        data=data_s / train_s if train_s > 0 and data_s >= 0 else None,
        host_bound=float(bound.mean()) if len(bound) else None,
        busy=_mean(rows, "busy"),
        power_w=power_w and power_w * len(every) / sum(map(bool, read)),
        throttled=throttled,
        fault=fault,
    )


Weighted = list[tuple[float, Row]]


def _weighted(
    logs: Sequence[GpuLog], weigh: Callable[[Row], float]
) -> list[tuple[GpuLog, Weighted]]:
    """Return the GPUs and their rows, each with its weight, without those that have none."""
    found: list[tuple[GpuLog, Weighted]] = [
        (log, [(w, row) for row in log.rows if (w := weigh(row)) > 0]) for log in logs
    ]
    return [(log, rows) for log, rows in found if rows]


def _mean(weighted: Weighted, name: str) -> float | None:
    own = [(weight, row[name]) for weight, row in weighted if name in row]
    return sum(weight * value for weight, value in own) / sum(w for w, _ in own) if own else None


def _throttled(gpus: Sequence[tuple[GpuLog, Weighted]]) -> tuple[str | None, str | None]:
    """Return the longest throttling of a GPU that is a fault or lowers its clock, if it is long.

    Its cause follows if it is a fault.
    """
    found = []
    for log, rows in gpus:
        clock, highest = _mean(rows, "sm_mhz"), log.facts.get("max_sm_mhz")
        is_low = clock is not None and highest is not None and clock < LOW_CLOCK * highest
        at = (
            f"clocks at {clock / 1e3:.2f} of {highest / 1e3:.2f} GHz, " if clock and highest else ""
        )
        for cause in THROTTLES:
            share = _mean(rows, f"throttled_{cause}") or 0.0
            if share >= MIN_THROTTLED and (is_low or cause in _FAULTS):
                text = f"{at}throttled by {cause} {share:.0%} of the time"
                found.append((share, f"{text} (GPU {log.index} of {log.node})", cause))
    if not found:
        return None, None
    _, text, cause = max(found)
    if cause not in _FAULTS:
        return text, None
    return f"{text}; leave out the node (--exclude), and tell the site", cause


def explained(run: MeasuredRate, load: Load) -> list[str]:
    """Return why a run is slower than its GPUs allow, each cause with its evidence and its fix."""
    causes = [*_waits(load, run.log.config or {}), *filter(None, [load.throttled])]
    return [f"{run.log.name}: {why}" for why in causes]


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
