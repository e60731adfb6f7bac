"""Contrasts of the speed of arms, over the steps that all their runs time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from analysis.measure.arms import Arm
from analysis.measure.differences import unclear_key
from analysis.measure.loss_curve import Range
from analysis.measure.rate import WIDEST, MeasuredRate, measure_rate, turn_rates
from analysis.measure.work import why_images_doubtful, why_other_steps, work
from analysis.observations import (
    is_repeat,
    ran_at_once,
    replicate,
    without_early_ends,
)
from analysis.read.run_log import Ints
from analysis.stats.contrast import contrast, scatter_of
from analysis.stats.intervals import Floats
from analysis.stats.mean import MIN_VALUES, Mean, satterthwaite
from analysis.stats.replicates import FEWEST, Contrast, Quantity, Replicate, Scatter, refused
from analysis.stats.summary import ratio_of_means

SPEED = Quantity(name="speed", better="higher", margin=0.01)
# Ranges whose ends differ by a smaller share, or by a record, are the same.
SAME_RANGE = 0.01
# Records that are so many times as far apart may not show the warm-up that others do.
COARSER = 1.5
# Steps that all record are too rare beyond so many times the records of the one with the fewest.
SPARSE = 4
# Steps are paired in vain if the interval is wider by this factor than by the two runs as they are.
IN_VAIN = 1.5


def speed_contrasts(arms: Sequence[Arm]) -> list[Contrast]:
    """Return the contrasts of all arms but the first with the first."""
    scatter = scatter_of([_replicates(arm, 0.0) for arm in arms])
    at_once = ran_at_once([log for arm in arms for log in arm.logs])
    return [speed_contrast(arms[0], arm, at_once=at_once, scatter=scatter) for arm in arms[1:]]


def speed_contrast(
    base: Arm,
    arm: Arm,
    *,
    at_once: Mapping[int, str] | None = None,
    scatter: Scatter | None = None,
) -> Contrast:
    """Return the contrast of images per second, else of tokens, else of steps.

    Images and tokens count if both arms record them. `at_once` are those of all runs of a table
    that shared a node with another at the same time.
    """
    if why := why_not_comparable(base, arm, at_once):
        return refused(why)
    base, arm, within, remarks = alike_in_range(base, arm)
    unit, shift = work(base.runs[0], arm.runs[0])
    sides = [_replicates(base, 0.0), _replicates(arm, shift)]
    if not all(sides):
        lacks = "no time is recorded"
        return Contrast(mean=None, why=f"{lacks} {within.remark}" if within else lacks)
    if len(base.runs) == len(arm.runs) == 1:
        steps = _of_two_runs(base.runs[0], arm.runs[0], shift)
        alike = is_repeat(base.runs[0].log, arm.runs[0].log)
        found = contrast(*sides, steps=replace(steps, of_one_recipe=alike))
    else:
        found = contrast(*sides, scatter=scatter)
    if (doubt := base.doubt or arm.doubt) and found.mean is not None:
        found = replace(found, mean=Mean(value=found.mean.value), why=doubt)
    if unit != "image" or shift:
        found = replace(found, remarks=(*found.remarks, f"in {unit}s/s"))
    if unit == "step" and (unclear := unclear_key(base.runs[0].log, arm.runs[0].log)):
        remarks.append(f"what {unclear} changes is not known")
        found = replace(found, is_claim=False)
    if fault := base.fault or arm.fault:
        remarks.append(fault)
        found = replace(found, is_claim=False)
    if base.runs[0].evaluates:
        remarks.append("evaluations included")
    if within and found.unit not in ("step", "round"):
        remarks.append(within.remark)
    return replace(found, remarks=(*found.remarks, *remarks))


def log_ratio(base: Arm, arm: Arm) -> float | None:
    """Return the log of the mean speed of one comparable arm over another's, None if unknown."""
    base, arm, *_ = alike_in_range(base, arm)
    sides = [_replicates(base, 0.0), _replicates(arm, work(base.runs[0], arm.runs[0])[1])]
    if not all(sides):
        return None
    before, after = (float(np.mean([run.log for run in side])) for side in sides)
    return after - before


def alike_in_range(base: Arm, arm: Arm) -> tuple[Arm, Arm, Range | None, list[str]]:
    """Return two arms over the steps that all their runs have, if these differ, and remarks.

    A change at the same step of both, such as a slow first epoch, then counts in both alike.
    """
    logs = [base.logs, arm.logs]
    *kept, remarks = without_early_ends(*logs)
    counted = {id(log) for side in kept for log in side}
    if min(map(len, kept)) < FEWEST <= min(map(len, logs)):
        # The rate of half a run says as much, unlike its loss.
        counted, remarks = {id(log) for side in logs for log in side}, []
    sides = [[run for run in one.runs if id(run.log) in counted] for one in (base, arm)]
    timed = [run for side in sides for run in side if len(run.intervals.row)]
    within, pairs = _common_steps(timed) if len(timed) == len(counted) else (None, frozenset())
    arms = [
        Arm(
            runs=tuple(
                measure_rate(run.log, clock=run.clock, within=within, pairs=pairs) for run in side
            )
        )
        for side in sides
    ]
    return arms[0], arms[1], within, remarks


def _common_steps(runs: Sequence[MeasuredRate]) -> tuple[Range | None, frozenset[complex]]:
    """Return the range that all runs time, None if each times about the same, and its intervals.

    These are the pairs of steps between which all time training, none if no run times others: an
    interval that one run leaves out as its evaluation may hold a pause of all. A warm-up shows in
    many records only.
    """
    kept = [_steps_that_count(run) for run in runs]
    records = [float(np.median(run.intervals.steps)) for run in runs]
    is_mixed = max(records) >= COARSER * min(records)
    firsts = [own[0] if is_mixed else run.log.step[run.intervals.start[0]]
              for own, run in zip(kept, runs, strict=True)]  # fmt: skip
    begun, ended = np.array(firsts), np.array([own[-1] for own in kept])
    low, high = begun.max(), ended.min()
    timed = [run.intervals.pairs(run.log.step) for run in runs]
    shared = reduce(np.intersect1d, timed)
    shared = shared[(shared.real >= low) & (shared.imag <= high)]
    is_all = all(len(np.unique(own)) == len(shared) for own in timed)
    is_dense = len(shared) * SPARSE * max(records) >= high - low
    pairs = frozenset[complex](shared.tolist() if is_dense and not is_all else ())
    slack = max(SAME_RANGE * ended.max(), *records)
    is_alike = max(np.ptp(begun), np.ptp(ended)) <= slack
    if is_alike and not is_mixed:
        return None, pairs
    return Range(by="step", low=low, high=high), pairs


def _replicates(arm: Arm, shift: float) -> list[Replicate]:
    return [
        replicate(
            run.log,
            math.log(run.rate.value) + shift,
            rounds={
                name: log + shift for name, log in turn_rates(run.log, clock=run.clock).items()
            },
            blur=run.blur,
        )
        for run in arm.runs
        if run.rate
    ]


def _of_two_runs(base: MeasuredRate, arm: MeasuredRate, shift: float) -> Contrast:
    """Compare two runs by the steps that both record, otherwise by their means."""
    assert base.summary is not None
    assert arm.summary is not None
    a, b = base.summary.mean, arm.summary.mean
    changes = tuple(
        f"{run.log.name}: {change}" for run in (base, arm) if (change := run.lasting_change())
    )
    change = changes[0] if changes else None
    wide = (f"the speed of {run.log.name} is undetermined" for run in (base, arm) if run.is_wide)
    unsure = next(wide, None)
    means = _ratio_of_runs(a, b)
    if means is None:
        value = math.log(a.value / b.value) + shift
        return Contrast(mean=Mean(value=value), unit="run", n=1, why="too few records")
    keys = [_step_keys(run) for run in (base, arm)]
    common, at_a, at_b = np.intersect1d(keys[0][0], keys[1][0], return_indices=True)
    if len(common) >= max(MIN_VALUES, min(len(key) for key, _ in keys) / 2):
        steps = common.imag - common.real
        found = ratio_of_means(keys[0][1][at_a], keys[1][1][at_b], weights=steps)
        # The gap of short runs may wander so much that its few independent values tell nothing.
        if found.half_width <= IN_VAIN * means.half_width:
            mean = replace(found, value=found.value + shift)
            alone = unsure if found.half_width > WIDEST else None
            return Contrast(
                mean=mean, unit="step", n=len(common), why=change, unsure=alone, remarks=changes
            )
    mean = replace(means, value=means.value + shift)
    return Contrast(mean=mean, unit="run", n=1, why=change, unsure=unsure)


def _ratio_of_runs(below: Mean, above: Mean) -> Mean | None:
    """Return the log of below/above, two independent means; None if either has no error."""
    a, b = below.logarithm(), above.logarithm()
    if a.error is None or b.error is None:
        return None
    return satterthwaite(a.value - b.value, [a.error**2, b.error**2], [a.freedom, b.freedom])


def _steps_that_count(run: MeasuredRate) -> Ints:
    """Return the steps at which the intervals that count begin or end, in order."""
    assert run.summary is not None
    found = run.intervals.where(run.summary.kept)
    return np.union1d(run.log.step[found.start], run.log.step[found.row])


def _step_keys(run: MeasuredRate) -> tuple[NDArray[np.complex128], Floats]:
    """Return the pairs of steps of the intervals that count [n], and their seconds [n]."""
    assert run.summary is not None
    found = run.intervals.where(run.summary.kept)
    keys, first = np.unique(found.pairs(run.log.step), return_index=True)
    return keys, found.seconds[first]


def why_not_comparable(base: Arm, arm: Arm, at_once: Mapping[int, str] | None = None) -> str | None:
    """Return why two arms have no ratio, or None: across clocks it would measure the clocks.

    `at_once` are the runs that shared a node with another at the same time, by default of these.
    """
    logs = [*base.logs, *arm.logs]
    at_once = ran_at_once(logs) if at_once is None else at_once
    if why := next((at_once[id(log)] for log in logs if id(log) in at_once), None):
        return why
    a, b = base.runs[0], arm.runs[0]
    if a.clock != b.clock:
        untimed = next((run for run in (a, b) if run.summary is None), None)
        if untimed is not None:
            return f"no time was read of {untimed.log.name}"
        return f"{b.clock} clock against {a.clock} clock"
    if a.evaluates != b.evaluates:
        return "every interval of one holds an evaluation, which its time counts"
    if a.unit != b.unit:
        return f"{b.unit}s against {a.unit}s"
    counted = work(a, b)[0]
    if counted == "unit":
        return "their logs do not say what their records count"
    if counted == "image" and (why := why_images_doubtful(a.log, b.log)):
        return why
    if counted == "step" and a.summary and b.summary and (why := why_other_steps(a.log, b.log)):
        return f"{why}, and no images are recorded"
    if a.clock == "printed" and a.log.format != b.log.format:
        return f"printed by {b.log.format} against printed by {a.log.format}"
    return None
