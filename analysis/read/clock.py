"""Find out by its values which time a log prints: passed since the start, per step, or neither."""

import numpy as np

from analysis.read.columns import Rows
from analysis.read.vocabulary import key_of
from analysis.stats.intervals import Floats

DAY_S = 86_400.0
# A smaller time is not one since 1970.
EPOCH_TIMES = 1e8
# Shares of rising times from which they are a clock: of any time, and of one that is called so.
RISES, CALLED_RISES = 0.85, 0.7


def timed(
    rows: Rows, *, axis: str, without_unit: frozenset[str] = frozenset()
) -> tuple[Rows, dict[str, str]]:
    """Return the rows of one run with each time as what it is, and what is uncertain and why.

    A time passed since the start only if it rises, whatever it is called. Any other is that of a
    step if every step is printed or a wait for data beside it, of an epoch if the axis counts
    these; otherwise it has two readings. The times `without_unit` may be in another unit than
    seconds.
    """
    columns = {
        name: np.where(np.isinf(column), np.nan, column)
        if name.endswith(("time", "_s"))
        else column
        for name, column in rows.columns.items()
    }
    bare = set(without_unit)

    def rename(name: str, new: str) -> None:
        """Rename a column, or drop it if the log has one of the new name."""
        values = columns.pop(name)
        if new not in columns:
            columns[new] = values
            bare.update([new] if name in bare else [])

    if axis == "epoch" and ("epoch_s" in columns or "time" not in columns):
        # That of a step within the epoch, which is not the axis.
        columns.pop("step_s", None)
    if "step_s" in columns and _counts(columns["step_s"]):
        columns.pop("step_s")
    if "epoch_s" in columns:
        rename("epoch_s", "step_s" if axis == "epoch" else "printed_s")
    if "interval_s" in columns:
        # Of a user's pattern: seconds since the line before.
        columns["interval_s"] = np.cumsum(np.nan_to_num(columns["interval_s"]))
        rename("interval_s", "elapsed_s")
    for name in ("train_s", "elapsed_s"):
        if name in columns and not _passes(columns[name]):
            rename(name, "duration_s")
    if "day_s" in columns:
        day_s = columns["day_s"] = _unwrapped(columns["day_s"])
        known = day_s[~np.isnan(day_s)]
        is_clock = len(known) > 2 and _share_of_rises(known) > RISES and known[-1] > known[0]
        new = "time" if "time" in columns else "elapsed_s" if is_clock else "duration_s"
        rename("day_s", new)
    if median(columns.get("duration_s")) >= EPOCH_TIMES:
        rename("duration_s", "time")
    if "time" in columns:
        # Printed in s, ms, us or ns.
        units = (unit for unit in (1e9, 1e6, 1e3) if median(columns["time"]) / unit >= EPOCH_TIMES)
        columns["time"] = columns["time"] / next(units, 1.0)
    uncertain: dict[str, str] = {}
    if "duration_s" in columns:
        name, uncertain = _reading(Rows(columns), axis)
        rename("duration_s", name)
    for name, what in (("step_s", "printed"), ("elapsed_s", "time")):
        if name in bare and name in columns and (what == "printed" or "time" not in columns):
            uncertain[what] = (
                "a printed time has no unit: seconds are assumed; --columns "
                f"{name}=NAME, or a group {name} or {name[:-2]}_ms of --pattern, says which it is"
            )
    return Rows(columns), uncertain


def _reading(rows: Rows, axis: str) -> tuple[str, dict[str, str]]:
    """Return which time a `duration_s` is, and what is uncertain about it and why."""
    at = np.flatnonzero(np.isfinite(rows["duration_s"]))
    if len(at) < 2:
        return "printed_s", {}
    values, steps = rows["duration_s"][at], np.diff(rows["step"][at])
    passed = _unwrapped(values)
    if len(at) > 2 and _share_of_rises(passed) > RISES and passed.max() > 1.5 * passed.min():
        return "elapsed_s", {}
    if len(at) > 2 and (np.diff(passed) > 0).mean() > RISES:
        return "printed_s", {}
    each = float(np.median(steps))
    # Trainers that print how long a step waited for data print how long it took, and nanoGPT those
    # that print the MFU of a step.
    is_of_step = "mfu_percent" in rows or _is_beside_data(rows, values)
    if axis == "epoch" or each == 1 or is_of_step:
        return "step_s", {}
    if "step_s" in rows:
        return "printed_s", {}
    doubt = (
        f"a printed time may be that of a step or of {each:g} steps: read as neither; "
        "step_s, interval_s or elapsed_s in --columns or as a group of --pattern says which"
    )
    return "printed_s", {"time": doubt}


def median(values: Floats | None) -> float:
    """Return the median of the finite values [n], 0 if there is none."""
    known = values[np.isfinite(values)] if values is not None else np.zeros(0)
    return float(np.median(known)) if len(known) else 0.0


def _share_of_rises(values: Floats) -> float:
    return float((np.diff(values) >= 0).mean())


def _counts(values: Floats) -> bool:
    """Whether what is called the time of a step counts the steps, as `time/batch` of Composer."""
    rises = np.diff(values[np.isfinite(values)])
    return len(rises) > 2 and bool((rises == rises[0]).all() and rises[0] >= 1)


def _passes(values: Floats) -> bool:
    """Whether a time [n] that is called one since the start rises, other than now and then."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return True
    grows = known.max() > 1.5 * known.min() or (np.diff(known) > 0).mean() > RISES
    return bool(grows and _share_of_rises(known) > CALLED_RISES)


def _is_beside_data(rows: Rows, values: Floats) -> bool:
    """Whether a `data_time` is printed that is a part of a time."""
    names = (name for name in rows.columns if key_of(name) in ("data time", "data"))
    waits = next((rows[name] for name in names), None)
    return waits is not None and median(waits) <= median(values)


def _unwrapped(values: Floats) -> Floats:
    """Return times of day as times that go on at midnight; others as they are."""
    at = np.flatnonzero(np.isfinite(values))
    if not len(at) or values[at].max() >= DAY_S:
        return values
    found = values.copy()
    found[at] += DAY_S * np.cumsum(np.diff(values[at], prepend=values[at[0]]) < -DAY_S / 2)
    return found
