"""Logs of one training: its copies, its ranks and its segments, which are no repeats of it."""

from collections.abc import Sequence

import numpy as np

from analysis.observations import seed_of
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats, decimal_grid

# Runs whose records are never further apart in time than this share of an interval, nor than so
# many seconds, ran in step: others drift apart.
IN_STEP, LOCKED_S = 0.1, 1.0
# Losses of other runs differ by more than a digit that is so small a share of them.
FINE = 2e-3
# Seconds by which the times of two logs of one training differ, if one has whole seconds.
SAME_S = 1.5
# A segment begins within so many intervals after the end of the one before it.
NEXT = 2


def distinct_runs(logs: Sequence[RunLog]) -> tuple[list[RunLog], list[str]]:
    """Return the run of each training that went furthest, and a remark on each that is left out.

    The runs are of one recipe, or may be.
    """
    trainings: list[list[RunLog]] = []
    whys: dict[int, str] = {}
    for log in logs:
        found = ((one, why_one_training(part, log)) for one in trainings for part in one)
        training, why = next((pair for pair in found if pair[1]), ([], None))
        if why is None:
            trainings.append(training)
        else:
            whys |= {id(one): why for one in (*training, log) if id(one) not in whys}
        training.append(log)
    kept = [max(training, key=_last_step) for training in trainings]
    remarks = [
        f"left out: {log.name} is {whys[id(log)]} of {one.name}"
        for one, training in zip(kept, trainings, strict=True)
        for log in training
        if log is not one
    ]
    return kept, remarks


def _last_step(log: RunLog) -> tuple[int, bool]:
    """Return the last step, and whether times are known, by which one of two copies is kept."""
    return (int(log.step[-1]) if len(log) else 0), "time" in log.values


def why_one_training(a: RunLog, b: RunLog) -> str | None:
    """Return what run `b` is to a run `a` of the same recipe, None if it may be a repeat."""
    begun = [{stay.began for stay in log.stays.values()} - {None} for log in (a, b)]
    if seed_of(a) != seed_of(b) or not (len(a) and len(b)):
        return None
    if all(begun) and begun[0].isdisjoint(begun[1]):
        return None
    first, last = (a, b) if a.step[0] <= b.step[0] else (b, a)
    gap, interval = last.step[0] - first.step[-1], np.median(np.diff(first.step, prepend=0))
    ended, began = first.column("time")[-1], last.column("time")[0]
    # One that resumes from an earlier checkpoint repeats steps, and a repeat begins at the first.
    goes_back = gap <= 0 and last.step[0] > NEXT * interval and began >= ended
    is_next = (0 < gap <= NEXT * interval and not began < ended) or goes_back
    if is_next:
        return "a segment of the training"
    _, at_a, at_b = np.intersect1d(a.step, b.step, return_indices=True)
    if 2 * len(at_a) < min(len(a), len(b)):
        return None
    time = a.column("time")[at_a]
    apart = np.abs(b.column("time")[at_b] - time)
    is_equal = _are_equal(a.column("loss")[at_a], b.column("loss")[at_b])
    if np.isnan(apart).all():
        return "a copy" if is_equal and a.path != b.path else None
    between = np.diff(time[np.isfinite(time)])
    pace = float(np.median(between)) if len(between) else 0.0
    in_step = min(IN_STEP * pace, LOCKED_S)
    if a.config is None or a.lines_read:
        # Of logs without a config, or with some of its keys, the losses have to agree, too.
        is_close = is_equal and np.nanmax(apart) <= max(in_step, SAME_S)
    else:
        is_close = np.nanmax(apart) <= in_step
    return "a copy, or another rank," if is_close else None


def _are_equal(a: Floats, b: Floats) -> bool:
    """Whether losses [n] are the same, as stored with 32 bits or printed with enough digits."""
    known = ~np.isnan(a) & ~np.isnan(b)
    if not known.any():
        return False
    a, b = a[known], b[known]
    digit = max(decimal_grid(side) or 0.0 for side in (a, b))
    is_fine = digit <= FINE * float(np.median(np.abs(a)))
    return np.allclose(a, b, rtol=1e-6, atol=0.51 * digit if is_fine else 0.0)
