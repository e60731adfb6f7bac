"""The load of a run in the steady state: its waits for data and for the host, and its GPUs."""

from typing import Any

import numpy as np

from analysis.gpus.slowdown import Load, Means, gpu_load, slowdowns
from analysis.measure.rate import MeasuredRate
from runs.folder import RunFolder
from runs.gpu_log import read_gpu_logs

# A row of readings counts if this share of its time is steady training.
MIN_STEADY = 0.8


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

    def steady_s(row: Means) -> float:
        begin, end = np.interp([row["time"] - row["span_s"], row["time"]], times, sums)
        return float(end - begin) if end - begin >= MIN_STEADY * row["span_s"] else 0.0

    attempts = map(RunFolder(log.path).attempt, np.unique(found.attempt[run.summary.kept]).tolist())
    return gpu_load(
        [read_gpu_logs(attempt) for attempt in attempts],
        steady_s,
        data=data_s / train_s if train_s > 0 and data_s >= 0 else None,
        host_bound=float(bound.mean()) if len(bound) else None,
    )


def load_row(load: Load) -> dict[str, Any]:
    """Return a load as fields of a row; the clock is that of the slowest GPU, in GHz."""
    of = dict(load.gpus[0][1]) if load.gpus else {}
    clocks = {f"{n}sm_ghz": of[f"{n}sm_mhz"] / 1e3 for n in ("", "max_") if f"{n}sm_mhz" in of}
    throttled = {n: share for n, share in of.items() if n.startswith("throttled_")}
    known = {"data_share": load.data, "host_bound": load.host_bound}
    known |= {"gpu_busy": load.busy, "power_w": load.power_w}
    return known | clocks | dict(sorted(throttled.items()))


def explained(run: MeasuredRate, load: Load) -> list[str]:
    """Return why a run is slower than its GPUs allow, with its name before each cause."""
    return [f"{run.log.name}: {why}" for why in slowdowns(load, run.log.config or {})]
