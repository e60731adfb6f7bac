"""Logs of one training: its copies, its ranks and its segments, which are no repeats of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.measure.rate import MeasuredRate
from analysis.observations import seed_of
from analysis.read.run_log import RunLog

# Runs whose records are never further apart in time than this share of an interval ran in step.
IN_STEP = 0.1
# A segment begins within so many intervals after the end of the one before it.
NEXT = 2


def distinct_runs(runs: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """Return the first run of each training, with a remark for each other that is left out."""
    kept: list[MeasuredRate] = []
    place_of: list[int] = []  # the place among the kept ones of the training of each run
    for run in runs:
        found = (why_one_training(one.log, run.log) for one in runs[: len(place_of)])
        place, why = next(
            ((place, why) for place, why in zip(place_of, found, strict=True) if why),
            (len(kept), None),
        )
        place_of.append(place)
        if why is None:
            kept.append(run)
        else:
            remark = f"{run.log.name}: left out: {why} of {kept[place].log.name}"
            kept[place] = replace(kept[place], remarks=(*kept[place].remarks, remark))
    return kept


def why_one_training(a: RunLog, b: RunLog) -> str | None:
    """Return what run `b` is to a run `a` of the same recipe, None if it may be a repeat."""
    if seed_of(a) != seed_of(b) or not (len(a) and len(b)):
        return None
    first, last = (a, b) if a.step[0] <= b.step[0] else (b, a)
    gap, interval = last.step[0] - first.step[-1], np.median(np.diff(first.step, prepend=0))
    if 0 < gap <= NEXT * interval and not last.column("time")[0] < first.column("time")[-1]:
        return "a segment of the training"
    _, at_a, at_b = np.intersect1d(a.step, b.step, return_indices=True)
    if 2 * len(at_a) < min(len(a), len(b)):
        return None
    time = a.column("time")[at_a]
    apart = np.abs(b.column("time")[at_b] - time)
    if np.isnan(apart).all():
        is_equal = np.array_equal(a.column("loss")[at_a], b.column("loss")[at_b])
        begun = [{stay.began for stay in log.stays.values()} - {None} for log in (a, b)]
        is_another = all(begun) and begun[0].isdisjoint(begun[1])
        return "a copy" if is_equal and a.path != b.path and not is_another else None
    pace = float(np.nanmedian(np.diff(time))) if len(time) > 1 else 0.0
    return "a copy, or another rank," if np.nanmax(apart) <= IN_STEP * pace else None
