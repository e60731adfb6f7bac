"""Detect faults in a run from its records: of its losses, its rate, and skipped steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.measure.rate import measure_rate
from analysis.read.run_log import RunLog, kept_with_log
from analysis.stats.intervals import Floats
from analysis.stats.summary import SIGMA_OF_MAD, robust

STALL_TIMES, STALL_SIGMAS = 6.0, 15.0
SPIKE_SIGMAS, SPIKE_SHARE = 8.0, 0.1
DIVERGED_RECORDS = 10
MOST_STALLS, STALL_SHARE = 3, 0.05
WINDOW = 15
MIN_RECORDS = 30


Finding = dict[str, Any]


@kept_with_log
def detect(log: RunLog) -> list[Finding]:
    """Return a row for each fault, at the step and line that show it, in the order of steps."""
    found = [*_nans(log), *_loss(log), *_rates(log), *_skipped_steps(log)]
    return sorted(found, key=lambda row: (row["step"], row["finding"]))


def _at(log: RunLog, row: int, kind: str, detail: str) -> Finding:
    return _finding(log, kind, int(log.step[row]), int(log.line[row]), detail)


def _finding(log: RunLog, kind: str, step: int, line: int, detail: str) -> Finding:
    return {"run": log.name, "finding": kind, "step": step, "line": line, "detail": detail}


def _nans(log: RunLog) -> Iterator[Finding]:
    """Find non-finite losses from events: our `failed`, or one read from another log."""
    for event in log.events:
        if event.get("reason") == "nan":
            step = int(event.get("step", log.step[-1] if len(log) else 0))
            rows = event.get("rows")
            detail = f"{rows} rows without a finite loss" if rows else "failed"
            yield _finding(log, "nan", step, int(event.get("line", 0)), detail)


def _loss(log: RunLog) -> Iterator[Finding]:
    """Find spikes, which pass, and divergence, which does not, in the logarithm of the loss."""
    rows = np.flatnonzero(~np.isnan(log.column("loss")))
    loss = log.column("loss")[rows]
    if len(rows) < MIN_RECORDS or (loss <= 0).any():
        return
    logs = np.log(loss)
    level = _past_median(logs)
    rise = logs - level
    sigma = _scatter(logs)
    high = (rise > max(SPIKE_SIGMAS * sigma, SPIKE_SHARE)) & (np.arange(len(rows)) >= WINDOW)
    lowest = np.minimum.accumulate(level)
    end = logs[-DIVERGED_RECORDS:]
    bound = max(SPIKE_SIGMAS * sigma / np.sqrt(DIVERGED_RECORDS), 2 * SPIKE_SHARE)
    diverged = float(np.median(end)) - float(lowest[-DIVERGED_RECORDS]) > bound
    first = _departure(logs, lowest, bound) if diverged else len(rows)
    if diverged:
        times = np.exp(np.median(end) - lowest[-DIVERGED_RECORDS])
        yield _at(log, int(rows[first]), "divergence", f"the loss ends {times:.2g} times its best")
    for start, stop in _stretches(high[:first]):
        peak = start + int(np.argmax(rise[start:stop]))
        times = np.exp(rise[peak])
        yield _at(log, int(rows[peak]), "spike", f"{times:.2g} times the loss before it")


def _past_median(values: Floats) -> Floats:
    """Return the median of the `WINDOW` values before each value [n]; the start is padded."""
    padded = np.concatenate([np.full(WINDOW, np.median(values[:WINDOW])), values[:-1]])
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)


def _scatter(logs: Floats) -> float:
    """Return the noise between records: the median over windows of the deviation within each.

    In a window a trend hardly counts, and noise that is correlated from record to record counts in
    full, as it does not in differences of neighbours.
    """
    windows = np.lib.stride_tricks.sliding_window_view(logs, min(2 * WINDOW, len(logs)))
    centres = np.median(windows, axis=1, keepdims=True)
    return SIGMA_OF_MAD * float(np.median(np.median(np.abs(windows - centres), axis=1)))


def _departure(logs: Floats, lowest: Floats, bound: float) -> int:
    """Return the row after which the loss never comes near its best again."""
    near = np.flatnonzero(logs < lowest + bound / 2)
    return min(int(near[-1]) + 1, len(logs) - 1) if len(near) else 0


def _stretches(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each stretch of true values, joined across at most `WINDOW` rows."""
    rows = np.flatnonzero(flags)
    if len(rows):
        parts = np.split(rows, np.flatnonzero(np.diff(rows) > WINDOW) + 1)
        yield from ((int(part[0]), int(part[-1]) + 1) for part in parts)


def _rates(log: RunLog) -> Iterator[Finding]:
    """Find stalls (single intervals many times the steady one) and lasting drops of the rate."""
    has_wall_only = "train_s" not in log.values and "time" in log.values
    measured = measure_rate(log, clock="wall" if has_wall_only else None)
    found, result = measured.intervals, measured.summary
    if result is None or len(found.seconds) < MIN_RECORDS or found.clock == "printed":
        return
    clean = np.log(found.seconds[result.kept])
    median, sigma = robust(clean)
    bound = max(STALL_TIMES, float(np.exp(STALL_SIGMAS * sigma)))
    times = found.seconds / np.exp(median)
    stalls = np.flatnonzero(times > bound)
    if len(stalls) <= max(MOST_STALLS, STALL_SHARE * len(times)):
        # More of them are how this run is, and its rate says so.
        for index in stalls[stalls >= result.warmup]:
            detail = f"{times[index]:.3g} times the usual time of an interval"
            yield _at(log, int(found.row[index]), "stall", detail)
    if (change := result.change) is not None and change.ratio > 1:
        detail = f"every step takes {change.ratio - 1:.0%} longer from here on"
        yield _at(log, int(found.row[change.index]), "rate drop", detail)


def _skipped_steps(log: RunLog) -> Iterator[Finding]:
    """Find fine-tuning steps that were skipped after an out-of-memory error."""
    images = np.nan_to_num(log.column("skipped_images"))
    for row in np.flatnonzero(images > 0):
        detail = f"{images[row]:.0f} images: out of memory, most likely, and skipped"
        yield _at(log, int(row), "skipped", detail)
