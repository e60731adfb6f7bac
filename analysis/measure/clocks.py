"""Durations between the records of a run, on one named clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.read.epochs import CUT_S
from analysis.read.run_log import Ints, RunLog
from analysis.stats.intervals import Floats, decimal_grid
from analysis.stats.summary import SLOW_TIMES

# The clocks and their meaning in `--help`, in the order of preference.
CLOCKS = {
    "train": "training steps, including their waits for data",
    "bar": "the time of a progress bar, without intervals that hold an evaluation",
    "wall": "wall time, without intervals that hold a save, a sampling or an evaluation",
    "printed": "rates as the log prints them",
}
# Counts and clocks that rise in an interval which is no training alone; profiled steps are slow.
PAUSES = {
    "wall": ("save_s", "sample_s", "eval_s", "profile_s", "evaluated"),
    "bar": ("profile_s", "evaluated"),
}
# An interval is this many units of a clock's resolution long.
MIN_INTERVAL = 20.0
# A coarser share of an interval is the clock's resolution, not its noise.
RESOLVED = 1e-3
# Steps whose work differs by more are no common unit; a mean since the start lags behind by less.
OTHER_WORK = 1.15
# A first interval of so many times as many steps as others is a jump.
JUMP = 5
# The columns of printed rates, in the order of preference, and what each counts.
_PRINTED = {
    "step_s": "step", "steps_per_s": "step", "images_per_s": "image",
    "tokens_per_s": "token/device",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """`m` intervals between successive records of one attempt, in order.

    `steps` [m] are those of an interval (1 for a printed rate); `seconds` and `images` [m] are per
    step (images are NaN if neither they nor the batch are recorded). `attempt` [m] and `row` [m]
    belong to the record that ends an interval, `start` [m] is the row of the record before it.
    `left_out` counts the intervals with a pause or with a clock that stood still. If a log prints
    no rate of steps, `unit` replaces the step: an image, or a token of one device. `rounding_s`
    is what averaging does not remove: half a unit of the last digit of printed rates, half a second
    of the end of each bar.
    """

    clock: str
    unit: str = "step"
    steps: Floats
    seconds: Floats
    images: Floats
    attempt: Ints
    row: Ints
    start: Ints
    left_out: int
    rounding_s: float = 0.0

    def where(self, kept: NDArray[np.bool_]) -> "Intervals":
        """Return the intervals that are `kept` [m]."""
        each = ("steps", "seconds", "images", "attempt", "row", "start")
        return replace(self, **{name: getattr(self, name)[kept] for name in each})

    def pairs(self, step: Ints) -> NDArray[np.complex128]:
        """Return the first and the last step of each interval as a complex number [m]."""
        return step[self.start] + 1j * step[self.row]


def available_clocks(log: RunLog) -> list[str]:
    """Return the clocks that a log can be measured on, in order of preference."""
    least = {clock: 1 if clock == "printed" else 2 for clock in CLOCKS}
    return [c for c in CLOCKS if (~np.isnan(_reading(log, c))).sum() >= least[c]]


def why_uncertain(log: RunLog, *, clock: str) -> str | None:
    """Return why a rate can have no interval: its steps or its times have two readings."""
    own = {"wall": "time", "printed": "printed", "bar": "bar"}.get(clock, clock)
    return log.uncertain.get("step") or log.uncertain.get(own)


def choose_clocks(logs: Sequence[RunLog]) -> list[str]:
    """Return a clock for each log: the best that all share, otherwise the best of each."""
    available = [available_clocks(log) for log in logs]
    shared = [clock for clock in CLOCKS if all(clock in clocks for clocks in available if clocks)]
    if len({log.format for log in logs}) > 1 and "printed" in shared:
        shared.remove("printed")
    if logs and "printed" in shared[1:] and works_differ(logs, shared[0]):
        shared = ["printed"]
    return [shared[0] if shared and clocks else (clocks or ["train"])[0] for clocks in available]


def works_differ(logs: Sequence[RunLog], clock: str) -> bool:
    """Whether a step of one log holds more work than another's by the throughput that all print."""
    for rate in ("images_per_s", "tokens_per_s"):
        if any(rate not in log.values or "images" in log.values for log in logs):
            continue
        seconds = [intervals(log, clock=clock).seconds for log in logs]
        rates = [log.column(rate)[log.column(rate) > 0] for log in logs]
        if all(map(len, seconds)) and all(map(len, rates)):
            works = [
                float(np.median(own) * np.median(per_s))
                for own, per_s in zip(seconds, rates, strict=True)
            ]
            return max(works) > OTHER_WORK * min(works)
    return False


def intervals(log: RunLog, *, clock: str) -> Intervals:
    """Return the intervals of a run. Time before an attempt's first record is in none of them."""
    if clock == "printed":
        return _printed(log)
    reading = _reading(log, clock).copy()
    if clock in ("wall", "bar"):
        # Of rows that were written out together the last one counts.
        again = (np.diff(reading) == 0) & (np.diff(log.attempt) == 0)
        reading[np.flatnonzero(again)] = np.nan
    reading[np.isin(log.attempt, list(log.superseded))] = np.nan
    # A clock that falls has begun again: no interval spans that.
    known = np.flatnonzero(~np.isnan(reading))
    begun = np.cumsum(np.isin(np.arange(len(log)), known[1:][np.diff(reading[known]) < 0]))
    rows = _rows_to_read(reading, log.attempt)
    start, end = rows[:-1], rows[1:]
    same = (log.attempt[start] == log.attempt[end]) & (begun[start] == begun[end])
    start, end = start[same], end[same]
    steps = log.step[end] - log.step[start]
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = (reading[end] - reading[start]) / steps
        images = (log.column("images")[end] - log.column("images")[start]) / steps
    if "images" not in log.values and log.axis == "step":
        images = log.column("batch")[end]
    kept = (steps > 0) & (seconds > 0)
    if len(steps):
        # A trainer that resumes may count from 0 over what it skips.
        is_first = np.diff(log.attempt[start], prepend=-1) != 0
        kept &= ~(is_first & (steps > JUMP * np.median(steps)))
    for pause in PAUSES.get(clock, ("profile_s",)):
        spent = np.nan_to_num(log.column(pause))
        kept &= spent[end] == spent[start]
    return Intervals(
        clock=clock,
        steps=steps.astype(np.float64),
        seconds=seconds,
        images=images,
        attempt=log.attempt[end],
        row=end,
        start=start,
        left_out=int((~kept).sum()),
        rounding_s=_cut_s(log, rows) if clock == "bar" else 0.0,
    ).where(kept)


def _cut_s(log: RunLog, rows: Ints) -> float:
    """Return the seconds per step by which bars that restarted may be longer or shorter."""
    if "bars" not in log.values or len(rows) < 2:
        return 0.0
    bars, steps = log.column("bars")[rows], log.step[rows]
    return CUT_S * float(bars[-1] - bars[0]) / max(int(steps[-1] - steps[0]), 1)


def _reading(log: RunLog, clock: str) -> Floats:
    """Return the clock's reading at each row, in seconds (for `printed`, the seconds of a unit)."""
    if clock == "wall":
        return log.column("time") if "time" in log.values else log.column("elapsed_s")
    if clock == "printed":
        return _seconds_printed(log)
    return log.column("bar_s" if clock == "bar" else "train_s")


def _rows_to_read(reading: Floats, attempt: Ints) -> Ints:
    """Return the rows to read a clock at.

    A clock with a grid (whole seconds or milliseconds) is read at every k-th row, so that an
    interval has many units of it, and each reading is moved (in place) by a random fraction of a
    unit, so that the median is not one of a few values.
    """
    rows = np.flatnonzero(~np.isnan(reading))
    grid = decimal_grid(reading[rows])
    if grid is None or grid < RESOLVED * float(np.median(np.abs(np.diff(reading[rows])))):
        return rows
    reading[rows] += grid * np.random.default_rng(0).random(len(rows))
    kept = [
        _every(rows[attempt[rows] == number], reading / grid) for number in np.unique(attempt[rows])
    ]
    return np.concatenate(kept)


def _every(rows: Ints, reading: Floats) -> Ints:
    """Return every k-th row, between which there are `MIN_INTERVAL` units of the clock."""
    spent = float(reading[rows[-1]] - reading[rows[0]])
    return rows[:: max(1, math.ceil(MIN_INTERVAL * (len(rows) - 1) / max(spent, 1e-9)))]


def _printed_column(log: RunLog) -> str:
    """Return the name of the printed rate."""
    return next((name for name in _PRINTED if name in log.values), "step_s")


def _seconds_printed(log: RunLog) -> Floats:
    """Return printed seconds per step, or per image or token if no rate of steps is printed."""
    name = _printed_column(log)
    rate = log.column(name)
    return rate if name == "step_s" else np.where(rate > 0, 1 / np.where(rate > 0, rate, 1), np.nan)


def _rounding_s(log: RunLog, seconds: Floats) -> float:
    """Return half a unit of the last printed digit, in seconds per unit at the median."""
    name = _printed_column(log)
    per_digit = 1.0 if name == "step_s" else float(np.median(seconds)) ** 2
    printed = log.column(name)
    return 0.5 * per_digit * (decimal_grid(printed[~np.isnan(printed)]) or 0.0)


def _printed(log: RunLog) -> Intervals:
    seconds = _seconds_printed(log)
    unit = _PRINTED[_printed_column(log)]
    kept = seconds > 0
    # The time of the one step that is printed holds the evaluation before it.
    evaluated = np.diff(np.nan_to_num(log.column("evaluated")), prepend=0.0) > 0
    if kept.any():
        kept &= ~(evaluated & (seconds > SLOW_TIMES * np.median(seconds[kept])))
    has_images = unit in ("step", "image")
    images = log.column("images_per_s") * seconds if has_images else np.full(len(log), np.nan)
    rows = np.arange(len(log))
    return Intervals(
        clock="printed",
        unit=unit,
        steps=np.ones(len(log)),
        seconds=seconds,
        images=images,
        attempt=log.attempt,
        row=rows,
        start=rows,
        left_out=int((~kept).sum()),
        rounding_s=_rounding_s(log, seconds[kept]) if kept.any() else 0.0,
    ).where(kept)
