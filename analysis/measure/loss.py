"""Contrasts of the loss of arms: the same within a margin, better, worse or undetermined."""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.measure.aligned import aligned, begin_of
from analysis.measure.differences import unclear_key
from analysis.measure.loss_curve import (
    TIMED,
    LossCurve,
    Range,
    axis_of,
    loss_curve,
    not_finite_from,
    sense_of,
    why_other,
    why_other_schedule,
    why_unlike,
)
from analysis.measure.two_curves import contrast_of_curves
from analysis.measure.work import why_images_doubtful, why_other_steps
from analysis.observations import (
    by_seed,
    contrast_of_seeds,
    is_repeat,
    ran_at_once,
    replicate,
    seed_of,
    told_machines,
    without_early_ends,
)
from analysis.read.run_log import RunLog
from analysis.stats.contrast import scatter_of
from analysis.stats.intervals import Floats, decimal_grid
from analysis.stats.judge import OF_SEEDS
from analysis.stats.mean import Mean, mean_of
from analysis.stats.record_noise import begin_as_one
from analysis.stats.replicates import Contrast, Quantity, Replicate, Scatter, refused
from analysis.verdict import against_first
from configs.errors import Unreadable
from runs.records import is_number

# The loss of a run is the mean over this share of it: a single record is noisy.
FINAL_SHARE = 0.1
MARGIN = 0.01
# What two seeds of a recipe differ by at the end of training (standard deviation of logs).
SEED_SCATTER = 0.02
# Points that are not above 0, as a skipped step prints, are left out if they are so few and early.
MOST_LEFT_OUT = 0.05
# If a run goes on so much longer than another, its end is not the end of their common range.
GOES_ON = 1.25
# So many losses in a row that are not finite are more than steps that a scaler skips.
FEWEST_LOST = 3
# The fields of an evaluation without a result: a record leaves out what is not finite.
_PLACE = {"step", "images", "time", "attempt", "line"}
# The distance of samples without its bias, and the margin of equivalent ones.
FID = "fid_inf"
FID_MARGIN = 0.02
# Quantities that people know by another name.
NAMES = {FID: "FID"}
# Ends of two runs that differ by less are the same.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The quantity `of` over the axis `by`, compared within `margin`."""

    of: str = "loss"
    by: str = "step"
    margin: float = MARGIN

    @property
    def quantity(self) -> Quantity:
        """The loss as a quantity of a contrast."""
        return Quantity(
            name=NAMES.get(self.of, self.of.replace("_", " ")),
            better=sense_of(self.of),
            margin=self.margin,
            seed_scatter=SEED_SCATTER,
        )


def loss_scatter(arms: Sequence[Sequence[RunLog]], compared: Compared) -> Scatter:
    """Return the scatter of the losses at the end of the repeats of all arms of a table."""
    sides = [_at_ends(without_early_ends(arms[0], arm)[1], compared.of) for arm in arms]
    return scatter_of([by_seed(side) for side in sides], of_loss=True)


def _at_ends(logs: Sequence[RunLog], of: str) -> list[Replicate]:
    ends = [(log, final_loss(log, of=of)) for log in logs]
    return [
        replicate(log, math.log(end.value))
        for log, end in ends
        if end is not None and 0 < end.value < math.inf
    ]


def loss_contrast(
    base: Sequence[RunLog],
    arm: Sequence[RunLog],
    compared: Compared,
    *,
    scatter: Scatter | None = None,
) -> Contrast:
    """Return the contrast of the losses at the end of the range that all runs have.

    Runs of one seed count as one, by their mean; arms of one seed alone are compared run by run,
    which is no claim about other seeds. Two single runs are compared point by point. The same loss
    has to hold in both halves of the range, too. `scatter` is what all arms of a table say about
    their repeats.
    """
    for log in (*base, *arm):
        if doubt := why_doubtful(log, of=compared.of):
            return refused(doubt)
    all_runs = base, arm
    base, arm, left = without_early_ends(base, arm)
    logs = [*base, *arm]
    if why := _why_not_compared(base, arm, compared):
        return refused(why)
    schedule = why_other_schedule(base[0], arm[0])
    is_over = all(log.state.is_done or not log.state.has_events for log in logs)
    if schedule and not (is_over and compared.of != "loss"):
        return refused(schedule)
    of_steps = why_other_steps(base[0], arm[0]) if _counts_steps(logs, compared) else None
    if of_steps and axis_of(logs) == "step" and not schedule:
        return refused(f"{of_steps}, and no images are recorded")
    try:
        (before, again), (after, others) = (
            _unlike([_curve(log, compared) for log in side]) for side in (base, arm)
        )
        every = [*before, *after]
        if schedule:
            left = [*left, f"at the end of each, though {schedule}"]
            every = [replace(curve, x=np.ones(1), loss=curve.loss[-1:]) for curve in every]
        found, is_recorded = aligned(every)
    except Unreadable as error:
        why = str(error)
        for log in (*base, *arm):
            why = why.replace(str(log.path), log.name)
        return refused(why)
    is_above = np.all([curve.loss > 0 for curve in found], axis=0)
    parts = _parts(found[0])
    if not is_above[parts[0]].all() or is_above.mean() < 1 - MOST_LEFT_OUT:
        return Contrast(mean=None, why=f"a {compared.quantity.name} is not above 0")
    if not is_above.all():
        found = [replace(one, x=one.x[is_above], loss=one.loss[is_above]) for one in found]
        parts = [part[is_above] for part in parts]
    steps = None
    if len(found) == 2:
        steps = contrast_of_curves(found[0], found[1], parts, is_recorded=is_recorded)
        steps = replace(steps, of_one_recipe=is_repeat(base[0], arm[0]))
    replicates = [_replicate(curve, parts) for curve in found]
    count = len(before)
    runs = replicates[:count], replicates[count:]
    result = contrast_of_seeds(*runs, steps=steps, of_loss=True, scatter=scatter)
    has_interval = result.mean is not None and result.mean.error is not None
    if result.why and not has_interval and (again or others):
        result = replace(result, why="; ".join([result.why, *again, *others]))
    remarks = [*result.remarks, *left, *again, *others, *([of_steps] if of_steps else [])]
    high = found[0].x[-1]
    if max(curve.x[-1] for curve in every) > high * (1 + ROUNDING):
        # The first evaluation leaves nothing out.
        begin = max(map(begin_of, every)) if compared.of == "loss" else 0.0
        remarks.append(Range(by=compared.by, low=begin, high=high).remark)
    unclear = unclear_key(base[0], arm[0])
    doubts = [
        _told_early(every, compared.by),
        unclear and f"what {unclear} changes is not known",
        *map(told_selected, all_runs, (base, arm)),
    ]
    if any(doubts):
        remarks += filter(None, doubts)
        result = replace(result, is_claim=False)
    result = replace(result, remarks=tuple(remarks))
    return told_machines(result, [*base, *arm]) if compared.by in TIMED else result


def _told_early(curves: Sequence[LossCurve], by: str) -> str | None:
    """Return which run ends long before another without being done, None if none does.

    What learns faster at first may be worse in the end. By the clock of the machine, a log that
    does not say whether it is done may be of a faster run.
    """
    longest = max(curve.x[-1] for curve in curves)
    for log, end in ((curve.log, curve.x[-1]) for curve in curves):
        is_told = log.state.has_events or by not in TIMED
        if is_told and not log.state.is_done and GOES_ON * end < longest:
            return f"{log.name} ends before others"
    return None


def told_selected(runs: Sequence[RunLog], counted: Sequence[RunLog]) -> str | None:
    """Return which repeat that is left out was worse than all that count, None if none was.

    A recipe that diverges in half of its seeds is not as good as the other half.
    """
    kept = {id(log) for log in counted}
    for log in (one for one in runs if id(one) not in kept):
        with suppress(Unreadable):
            own, *others = (loss_curve(one, by="step") for one in (log, *counted))
            x = own.x[_parts(own)[0]]
            end, *ends = (float(np.interp(x, one.x, one.loss).mean()) for one in (own, *others))
            if end > max(ends) > 0 and math.log(end / max(ends)) > OF_SEEDS * SEED_SCATTER:
                return f"{log.name}, which ended early, had a higher loss than those that count"
    return None


def _why_not_compared(
    base: Sequence[RunLog], arm: Sequence[RunLog], compared: Compared
) -> str | None:
    """Return why a quantity is another one in two arms, or has no axis in common."""
    logs = [*base, *arm]
    if why := why_unlike(base[0], arm[0], compared.of) or why_other(logs, compared.of):
        return why
    if len({"mean_loss" in log.facts for log in logs}) > 1 and compared.of == "loss":
        return "one loss is a mean over steps, the other is not"
    if compared.by in TIMED and (at_once := ran_at_once(logs)):
        return next(iter(at_once.values()))
    axes = {log.axis: log.name for log in logs}
    if compared.by == "step" and "unit" in axes:
        return f"the log of {axes['unit']} does not say what its records count"
    if compared.by == "step" and len(axes) > 1:
        counts = " and ".join(f"{name} counts {axis}s" for axis, name in axes.items())
        return f"{counts}; align them by images if both know these"
    return why_images_doubtful(base[0], arm[0]) if compared.by == "images" else None


def _counts_steps(logs: Sequence[RunLog], compared: Compared) -> bool:
    return compared.by == "step" and {log.axis for log in logs} == {"step"}


def why_doubtful(log: RunLog, *, of: str = "loss") -> str | None:
    """Return why a run has no loss to compare: two readings of it, or one that is not finite."""
    if doubt := log.uncertain.get(of):
        return f"{log.name}: {doubt}"
    if (step := not_finite_from(log)) is not None:
        mostly = "mostly " if (log.step[~np.isnan(log.column("loss"))] > step).any() else ""
        return f"the loss of {log.name} is {mostly}not finite from step {step} on"
    valued = [one["step"] for one in log.evaluations if is_number(one.get(of))]
    bare = [one["step"] for one in log.evaluations if one.keys() <= _PLACE]
    if valued and bare and max(bare) > max(valued):
        return f"an evaluation of {log.name} at step {max(bare)} recorded no finite value"
    for event in log.events:
        if (rows := event.get("in_a_row", 0)) >= FEWEST_LOST:
            return (
                f"the loss of {log.name} is not finite in {rows} records from step {event['step']}"
            )
    return None


def _curve(log: RunLog, compared: Compared) -> LossCurve:
    return loss_curve(log, by=compared.by, of=compared.of)


def _unlike(curves: Sequence[LossCurve]) -> tuple[list[LossCurve], list[str]]:
    """Return the curves of an arm without those of a run that is another one's again.

    These are the ones with the same losses and seed, and those whose seeds differ in name alone,
    since a script ignores them: also GPUs scatter less than the noise of two seeds. Remarks name
    the latter.
    """
    kept: list[LossCurve] = []
    again = Counter[str]()
    for curve in curves:
        twin = next((one for one in kept if _is_again(one, curve)), None)
        if twin is None:
            kept.append(curve)
        elif seed_of(twin.log) != seed_of(curve.log):
            again[twin.log.name] += 1
    told = (f"{name} and {count} more have the losses of one seed" for name, count in again.items())
    return kept, [*told]


def _is_again(a: LossCurve, b: LossCurve) -> bool:
    """Whether two runs are of one seed, by its number or by their losses."""
    if not np.array_equal(a.x, b.x):
        return False
    if seed_of(a.log) == seed_of(b.log):
        return np.array_equal(a.loss, b.loss)
    return begin_as_one(a.loss, b.loss)


def _parts(curve: LossCurve) -> list[Floats]:
    """Return which points [n] are at the end of a curve, and which in each of its halves.

    The end is the last tenth, and of evaluations the last one.
    """
    x, low, high = curve.x, curve.x[0], curve.x[-1]
    last = high if curve.of != "loss" else high - FINAL_SHARE * (high - low)
    middle = (low + high) / 2
    return [np.asarray(x >= last), np.asarray(x <= middle), np.asarray(x >= middle)]


def _replicate(curve: LossCurve, parts: Sequence[Floats]) -> Replicate:
    end, *stretches = (float(curve.loss[part].mean()) for part in parts)
    return replicate(
        curve.log,
        math.log(end),
        stretches=tuple(map(math.log, stretches)),
        # Half a unit of the last printed digit: all records of a flat curve are rounded alike.
        blur=curve.blur + 0.5 * (decimal_grid(curve.loss) or 0.0) / end,
    )


def final_loss(log: RunLog, *, of: str = "loss") -> Mean | None:
    """Return the loss of a run: the mean of its last tenth, or the last evaluation `of`."""
    try:
        curve = loss_curve(log, by="step", of=of)
    except Unreadable:
        return None
    return mean_of(curve.loss[_parts(curve)[0]])


def loss_rows(logs: Sequence[RunLog], compared: Compared) -> list[dict[str, Any]]:
    """Return a row per run but the first, with the verdict on it against the first."""
    first, *others = logs
    finals = [final_loss(log, of=compared.of) for log in logs]
    values = [None if mean is None else mean.value for mean in finals]
    contrasts = [loss_contrast([first], [log], compared) for log in others]
    names = [log.name for log in logs]
    verdicts = against_first(contrasts, compared.quantity, names=names)[1:]
    return [
        {
            "a": first.name,
            "b": log.name,
            "loss_a": values[0],
            "loss_b": value,
            **verdict,
        }
        for log, value, verdict in zip(others, values[1:], verdicts, strict=True)
    ]
