"""What went wrong in a run, from its records and its ranks' logs: rate, clocks, loss."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis.detect.finding import Finding
from analysis.detect.gaps import gaps, resumes, skipped_steps
from analysis.detect.stragglers import late_ranks
from analysis.measure.clocks import Intervals, choose_clocks, intervals
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats, autocorrelation_time
from analysis.stats.steady_state import OUTLIER, SIGMA_OF_MAD, steady, warmup_end
from configs.run.folder import RunFolder

STALL_TIMES, STALL_SIGMAS = 6.0, 15.0
SPIKE_SIGMAS, SPIKE_SHARE = 8.0, 0.1
DIVERGED_RECORDS = 10
DROP_STRENGTH, DROP_SHARE = 6.0, 0.04
JUMP_BACK_S, JUMP_AHEAD_S = 1.0, 60.0
SMOOTHED = 15
FEWEST = 30
# Formats in which a row may well stand without a loss.
SPARSE = frozenset(["csv", "TensorBoard", "ai-toolkit database", "sample names", "ditbench"])


def detect(log: RunLog) -> list[Finding]:
    """Everything that the detectors see in a run, in the order of its steps."""
    seen = [*_nans(log), *_loss(log), *_rates(log), *_jumps(log), *_stragglers(log)]
    seen += [*skipped_steps(log), *gaps(log), *resumes(log)]
    return sorted(seen, key=lambda finding: (finding.step, finding.kind))


def _at(log: RunLog, row: int, kind: str, detail: str) -> Finding:
    return Finding(kind=kind, step=int(log.step[row]), line=int(log.line[row]), detail=detail)


def _nans(log: RunLog) -> Iterator[Finding]:
    """A loss that is not finite: an event of ours, or a row without a number where others have."""
    for event in log.events:
        if event.get("reason") == "nan":
            step = int(event.get("step", log.step[-1] if len(log) else 0))
            yield Finding(kind="nan", step=step, line=int(event.get("line", 0)), detail="failed")
    loss = log.column("loss")
    told = np.flatnonzero(~np.isnan(loss))
    if log.format not in SPARSE and len(told):
        absent = np.flatnonzero(np.isnan(loss[told[0] :])) + told[0]
        if len(absent):
            yield _at(log, int(absent[0]), "nan", f"{len(absent)} rows without a finite loss")


def _loss(log: RunLog) -> Iterator[Finding]:
    """Spikes, which pass, and divergence, which does not, on the log of the loss."""
    rows = np.flatnonzero(~np.isnan(log.column("loss")))
    loss = log.column("loss")[rows]
    if len(rows) < FEWEST or (loss <= 0).any():
        return
    logs = np.log(loss)
    level = _past_median(logs)
    rise = logs - level
    sigma = _scatter(logs)
    high = (rise > max(SPIKE_SIGMAS * sigma, SPIKE_SHARE)) & (np.arange(len(rows)) >= SMOOTHED)
    lowest = np.minimum.accumulate(level)
    end = logs[-DIVERGED_RECORDS:]
    worst = max(SPIKE_SIGMAS * sigma / np.sqrt(DIVERGED_RECORDS), 2 * SPIKE_SHARE)
    diverged = float(np.median(end)) - float(lowest[-DIVERGED_RECORDS]) > worst
    first = _departure(logs, lowest, worst) if diverged else len(rows)
    if diverged:
        times = np.exp(np.median(end) - lowest[-DIVERGED_RECORDS])
        yield _at(log, int(rows[first]), "divergence", f"the loss ends {times:.2g} times its best")
    for start, stop in _stretches(high[:first]):
        peak = start + int(np.argmax(rise[start:stop]))
        times = np.exp(rise[peak])
        yield _at(log, int(rows[peak]), "spike", f"{times:.2g} times the loss before it")


def _past_median(values: Floats) -> Floats:
    """The median of the `SMOOTHED` values before each one [n]; of the first ones, at the start."""
    padded = np.concatenate([np.full(SMOOTHED, np.median(values[:SMOOTHED])), values[:-1]])
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED), axis=1)


def _scatter(logs: Floats) -> float:
    """The noise from one record to the next, free of trend: from the second differences."""
    second = np.diff(logs, 2)
    return SIGMA_OF_MAD * float(np.median(np.abs(second - np.median(second)))) / 6**0.5


def _departure(logs: Floats, lowest: Floats, worst: float) -> int:
    """The row after which the loss never again comes near its best."""
    near = np.flatnonzero(logs < lowest + worst / 2)
    return min(int(near[-1]) + 1, len(logs) - 1) if len(near) else 0


def _stretches(flags: Any) -> Iterator[tuple[int, int]]:
    """The (start, stop) of each run of true values, those a few rows apart as one."""
    rows = np.flatnonzero(flags)
    if len(rows):
        parts = np.split(rows, np.flatnonzero(np.diff(rows) > SMOOTHED) + 1)
        yield from ((int(part[0]), int(part[-1]) + 1) for part in parts)


def _rates(log: RunLog) -> Iterator[Finding]:
    """Stalls (one interval that took many times its due) and lasting drops of the rate."""
    clock = (
        "wall" if "train_s" not in log.values and "time" in log.values else choose_clocks([log])[0]
    )
    found = intervals(log, clock=clock)
    if len(found.seconds) < FEWEST or clock == "printed":
        return
    result = steady(found.seconds, found.attempt)
    middle = result.seconds.value
    clean = np.log(found.seconds[result.kept])
    sigma = SIGMA_OF_MAD * float(np.median(np.abs(clean - np.median(clean))))
    bound = middle * max(STALL_TIMES, float(np.exp(STALL_SIGMAS * sigma)))
    for index in np.flatnonzero(found.seconds > bound):
        if index >= result.warmup:
            times = found.seconds[index] / middle
            row = int(found.row[index])
            yield _at(log, row, "stall", f"{times:.3g} times the steady time of an interval")
    yield from _drop(log, found)


def _drop(log: RunLog, found: Intervals) -> Iterator[Finding]:
    """The strongest lasting slow-down after a slow start, where there is one.

    What is an outlier is judged by the intervals around it, since the later ones may all be slow.
    """
    logs = np.log(found.seconds)
    half = len(logs) // 2
    head = warmup_end(found.seconds[:half])
    slow_start = head and np.median(logs[:head]) > np.median(logs[head:half])
    near = np.abs(logs - _past_median(logs)) < OUTLIER * max(_scatter(logs), 1e-6) + DROP_SHARE
    later = np.arange(len(logs)) >= (head if slow_start else 0)
    # A lasting change is far from the past, too, until the past has caught up with it.
    near |= np.abs(logs - _past_median(logs[::-1])[::-1]) < OUTLIER * _scatter(logs) + DROP_SHARE
    kept = np.flatnonzero(near & later)
    logs, n = logs[kept], len(kept)
    if n < FEWEST:
        return
    heads = np.arange(n // 10, n - n // 10)
    sums = np.cumsum(logs)
    gap = (sums[-1] - sums[heads - 1]) / (n - heads) - sums[heads - 1] / heads
    best = int(np.argmax(gap * np.sqrt(heads * (n - heads))))
    cut = int(heads[best])
    rest = np.concatenate([logs[:cut] - logs[:cut].mean(), logs[cut:] - logs[cut:].mean()])
    error = rest.std() * (autocorrelation_time(rest, fitted=2) * n / (cut * (n - cut))) ** 0.5
    if gap[best] > DROP_SHARE and gap[best] > DROP_STRENGTH * error:
        detail = f"every step takes {np.expm1(gap[best]):.0%} longer from here on"
        yield _at(log, int(found.row[kept[cut]]), "rate drop", detail)


def _jumps(log: RunLog) -> Iterator[Finding]:
    """A time of day that runs back, or apart from the run's own clocks."""
    time = log.column("time")
    rows = np.flatnonzero(~np.isnan(time))
    start, end = rows[:-1], rows[1:]
    same = log.attempt[start] == log.attempt[end]
    start, end = start[same], end[same]
    went = time[end] - time[start]
    for index in np.flatnonzero(went < -JUMP_BACK_S):
        yield _at(log, int(end[index]), "clock jump", f"back by {-went[index]:.3g} s")
    if "train_s" not in log.values or not len(went):
        return
    spent = sum(
        np.nan_to_num(log.column(name)[end] - log.column(name)[start])
        for name in ("train_s", "save_s", "sample_s", "eval_s", "setup_s")
    )
    apart = went - spent
    bound = max(JUMP_AHEAD_S, 20 * float(np.median(np.abs(went))))
    for index in np.flatnonzero(
        (apart > bound) | ((apart < -JUMP_BACK_S) & (went >= -JUMP_BACK_S))
    ):
        detail = f"{apart[index]:+.3g} s against the run's own clocks"
        yield _at(log, int(end[index]), "clock jump", detail)


def _stragglers(log: RunLog) -> Iterator[Finding]:
    """Ranks that the others wait for; the line is one of the rank's own file."""
    if log.format != "ditbench":
        return
    for late in late_ranks(RunFolder(log.path)):
        detail = (
            f"rank {late.rank} comes {late.late_s:.3g} s after the others at {late.share:.0%} of "
            f"{late.steps} steps of attempt {late.attempt}"
        )
        yield Finding(
            kind="straggler", step=late.step, line=late.line, detail=detail, path=late.path
        )
