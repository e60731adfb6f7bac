"""Find out by its values which time a log prints: passed since the start, per step, or neither."""

import numpy as np

from analysis.read.columns import Rows
from analysis.read.vocabulary import key_of
from analysis.stats.intervals import Floats

DAY_S = 86_400.0
# A smaller time is not one since 1970.
EPOCH_TIMES = 1e8
# Shares of rising times from which they are a clock, and to which they are durations.
RISES, FALLS = 0.85, 0.7
AGREE = 0.15


def timed(rows: Rows, *, axis: str, unit_is_known: bool) -> tuple[Rows, dict[str, str]]:
    """Return the rows of one run with a `duration_s` as what it is, and what is uncertain and why.

    A time that rises passed since the start. Any other is that of a step if every step is printed,
    of an epoch if the axis counts these, or if time stamps say so; otherwise it has two readings.
    """
    uncertain: dict[str, str] = {}
    columns = dict(rows.columns)
    epoch_s = columns.pop("epoch_s", None)
    if axis == "epoch":
        if epoch_s is not None:
            columns.setdefault("step_s", epoch_s)
        elif "step_s" in columns and "time" not in columns:
            # That of a step within the epoch, which is not the axis.
            del columns["step_s"]
    if "interval_s" in columns:
        # Of a user's pattern: seconds since the line before.
        columns.setdefault("elapsed_s", np.cumsum(np.nan_to_num(columns.pop("interval_s"))))
    day_s = columns.pop("day_s", None)
    if day_s is not None and "time" not in columns:
        at = np.flatnonzero(np.isfinite(day_s))
        passed = _unwrapped(day_s[at]) if len(at) > 1 else day_s[at]
        if len(at) > 2 and (np.diff(passed) >= 0).mean() > RISES and passed[-1] > passed[0]:
            clock = day_s.copy()
            clock[at] = passed
            columns.setdefault("elapsed_s", clock)
        else:
            columns.setdefault("duration_s", day_s)
    times = columns.pop("duration_s", None)
    if times is not None and np.isfinite(times).any() and np.nanmedian(times) >= EPOCH_TIMES:
        columns.setdefault("time", times)
        times = None
    if "time" in columns:
        columns["time"] = in_seconds(columns["time"])
    if times is None:
        return Rows(columns), uncertain
    at = np.flatnonzero(np.isfinite(times))
    if len(at) < 2:
        return Rows(columns), uncertain
    values, steps = times[at], np.diff(rows["step"][at])
    passed = _unwrapped(values)
    rises = float((np.diff(passed) >= 0).mean())
    if rises > RISES and len(at) > 2 and passed.max() > 1.5 * passed.min():
        clock = times.copy()
        clock[at] = passed
        columns.setdefault("elapsed_s", clock)
        return Rows(columns), uncertain
    if rises > RISES and len(at) > 2:
        return Rows(columns | {"printed_s": times}), uncertain
    each = float(np.median(steps)) if len(steps) else 1.0
    ratio = _against_stamps(rows["time"][at], values, steps)
    if ratio is not None:
        # Any other time than that of a step is told by the stamps as well.
        if abs(np.log(ratio)) < AGREE:
            columns.setdefault("step_s", times)
    elif axis != "epoch" and _is_beside_data(rows, values):
        # Trainers that print how long a step waited for data print how long it took.
        columns.setdefault("step_s", times)
    elif axis == "epoch" or each == 1:
        if "step_s" not in columns:
            columns["step_s"] = times
            if not unit_is_known:
                uncertain["printed"] = "a printed time has no unit: seconds are assumed"
    else:
        columns["printed_s"] = times
        if "step_s" not in columns:
            uncertain["time"] = (
                f"a printed time may be that of a step or of {each:g} steps: read as neither; "
                "--pattern with a group step_s, interval_s or elapsed_s says which"
            )
    return Rows(columns), uncertain


def in_seconds(time: Floats) -> Floats:
    """Return times since 1970 [n] in seconds, which are printed in s, ms, us or ns."""
    median = np.median(time[np.isfinite(time)]) if np.isfinite(time).any() else 0.0
    units = (unit for unit in (1e9, 1e6, 1e3) if median / unit >= EPOCH_TIMES)
    return time / next(units, 1.0)


def _is_beside_data(rows: Rows, values: Floats) -> bool:
    """Whether a `data_time` is printed that is a part of a time."""
    waits = next((rows[name] for name in rows.columns if key_of(name) == "data time"), None)
    return waits is not None and bool(np.nanmedian(waits) <= np.median(values))


def _unwrapped(values: Floats) -> Floats:
    """Return times of day as times that go on at midnight; others as they are."""
    if values.max() >= DAY_S:
        return values
    falls = np.diff(values, prepend=values[0]) < -DAY_S / 2
    return values + DAY_S * np.cumsum(falls)


def _against_stamps(time: Floats, values: Floats, steps: Floats) -> float | None:
    """Return how many times as long as a step by the stamps a printed time is, if they tell."""
    passed = np.diff(time)
    kept = np.isfinite(passed) & (passed > 0) & (steps > 0)
    if kept.sum() < 2 or np.median(passed[kept]) <= 0:
        return None
    whole, printed = passed[kept], values[1:][kept]
    if not (printed > 0).all():
        return None
    return float(np.median(printed * steps[kept] / whole))
