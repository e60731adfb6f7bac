"""Contrasts of the loss of arms: the same within a margin, better, worse or undetermined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from analysis.measure.loss_curve import (
    TIMED,
    LossCurve,
    Range,
    at_common_guidance,
    at_common_points,
    loss_curve,
    not_finite_from,
    why_other,
    why_unlike,
)
from analysis.observations import (
    is_repeat,
    nodes_of,
    ran_at_once,
    seed_of,
    told_machines,
    without_early_ends,
)
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import key_of
from analysis.stats.contrast import (
    Contrast,
    Quantity,
    Replicate,
    Scatter,
    contrast,
    refused,
    scatter_of,
)
from analysis.stats.intervals import Floats, decimal_grid
from analysis.stats.mean import MIN_VALUES, Mean, effective_number, mean_of, trend
from analysis.verdict import against_first
from configs.errors import Unreadable

# The loss of a run is the mean over this share of it: a single record is noisy.
FINAL_SHARE = 0.1
MARGIN = 0.01
# What two seeds of a recipe differ by at the end of training (standard deviation of logs).
SEED_SCATTER = 0.02
# Quantities that people know by another name.
NAMES = {"fid_inf": "FID"}
# Ends of two runs that differ by less are the same.
ROUNDING = 1e-6
# (least values, terms of the trend that are removed): each term costs a degree of freedom.
TREND_TERMS = ((100, 4), (15, 2), (0, 1))
# Words in the names of evaluations of which more, or less, is better.
_HIGHER = frozenset(
    ["accuracy", "acc", "acc1", "top1", "top5", "recognised", "precision", "recall", "f1", "auc",
     "map", "iou", "miou", "dice", "psnr", "ssim", "clip", "bleu", "gain"]
)  # fmt: skip
_LOWER = frozenset(
    ["loss", "error", "fid", "kid", "perplexity", "ppl", "mse", "rmse", "mae", "nll"]
)


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


def sense_of(of: str) -> Literal["higher", "lower", "unknown"]:
    """Return whether more or less of an evaluation is better, by its name."""
    words = {*key_of(of).split()}
    if words & _HIGHER:
        return "higher"
    return "lower" if words & _LOWER else "unknown"


def loss_scatter(arms: Sequence[Sequence[RunLog]], compared: Compared) -> Scatter:
    """Return the scatter of the losses at the end of the repeats of all arms of a table."""
    sides = [_one_per_seed(without_early_ends(arms[0], arm)[1]) for arm in arms]
    return scatter_of([_at_ends(side, compared.of) for side in sides], of_loss=True)


def _at_ends(logs: Sequence[RunLog], of: str) -> list[Replicate]:
    ends = [(log, final_loss(log, of=of)) for log in logs]
    return [
        Replicate(log=math.log(end.value), seed=seed_of(log))
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

    Runs of one seed have the same losses, so only one of them counts. Two single runs are compared
    point by point. The same loss has to hold in both halves of the range, too. `scatter` is what
    all arms of a table say about their repeats.
    """
    base, arm, left = without_early_ends(base, arm)
    logs = at_common_guidance([*base, *arm], compared.of)
    base, arm = logs[: len(base)], logs[len(base) :]
    if why := why_unlike(base[0], arm[0], compared.of) or why_other([*base, *arm], compared.of):
        return refused(why)
    if len({"mean_loss" in log.facts for log in (*base, *arm)}) > 1 and compared.of == "loss":
        return refused("one loss is a mean over steps, the other is not")
    if compared.by in TIMED and (at_once := ran_at_once([*base, *arm])):
        return refused(next(iter(at_once.values())))
    for log in (*base, *arm):
        if doubt := why_doubtful(log, of=compared.of):
            return refused(doubt)
        if compared.by == "step" and log.axis == "unit":
            return refused(f"the log of {log.name} does not say what its records count")
    try:
        sides = [[_curve(log, compared) for log in _one_per_seed(side)] for side in (base, arm)]
    except Unreadable as error:
        why = str(error)
        for log in (*base, *arm):
            why = why.replace(str(log.path), log.name)
        return refused(why)
    longest = max(curve.x[-1] for side in sides for curve in side)
    if compared.of != "loss":
        sides = at_common_points(sides)
    every = [curve for side in sides for curve in side]
    low = max(curve.x[0] for curve in every)
    high = min(curve.x[-1] for curve in every)
    if high < low:
        return refused(f"no common range of {compared.by}")
    if any((curve.loss <= 0).any() for curve in every):
        return Contrast(mean=None, why=f"a {compared.quantity.name} is not above 0")
    if not all(_counts(curve, low, high) for curve in every):
        return Contrast(mean=None, why="no record near the end of the range that both have")
    if len(sides[0]) == len(sides[1]) == 1:
        steps = _of_two_curves(sides[0][0], sides[1][0], low, high)
        steps = replace(steps, of_one_recipe=is_repeat(base[0], arm[0]))
    else:
        steps = None
    replicates = [[_replicate(curve, low, high) for curve in side] for side in sides]
    found = contrast(*replicates, steps=steps, of_loss=True, scatter=scatter)
    found = replace(found, remarks=(*found.remarks, *left))
    if compared.by in TIMED:
        found = told_machines(found, [*base, *arm])
    if longest > high * (1 + ROUNDING):
        begin = low if compared.of == "loss" else 0.0  # the first evaluation leaves nothing out
        remark = Range(by=compared.by, low=begin, high=high).remark
        return replace(found, remarks=(*found.remarks, remark))
    return found


def why_doubtful(log: RunLog, *, of: str = "loss") -> str | None:
    """Return why a run has no loss at its end: two readings of it, or one that is not finite."""
    if doubt := log.uncertain.get(of):
        return f"{log.name}: {doubt}"
    if (step := not_finite_from(log)) is not None:
        mostly = "mostly " if (log.step[~np.isnan(log.column("loss"))] > step).any() else ""
        return f"the loss of {log.name} is {mostly}not finite from step {step} on"
    return None


def _curve(log: RunLog, compared: Compared) -> LossCurve:
    return loss_curve(log, by=compared.by, of=compared.of)


def _one_per_seed(logs: Sequence[RunLog]) -> list[RunLog]:
    return list({seed_of(log): log for log in reversed(logs)}.values())[::-1]


def _tail(x: Floats, low: float, high: float, of: str = "loss") -> Floats:
    """Return which points [n] are in the last tenth of a range; of evaluations the last one."""
    last = x <= high
    if of != "loss":
        return np.asarray(x == x[last][-1])
    return np.asarray(last & (x >= high - FINAL_SHARE * (high - low)))


def _halves(x: Floats, low: float, high: float) -> list[Floats]:
    middle = (low + high) / 2
    return [np.asarray((x >= low) & (x <= middle)), np.asarray((x >= middle) & (x <= high))]


def _counts(curve: LossCurve, low: float, high: float) -> bool:
    parts = [_tail(curve.x, low, high, curve.of), *_halves(curve.x, low, high)]
    return all(part.any() for part in parts)


def _replicate(curve: LossCurve, low: float, high: float) -> Replicate:
    parts = [_tail(curve.x, low, high, curve.of), *_halves(curve.x, low, high)]
    end, *stretches = (float(curve.loss[part].mean()) for part in parts)
    return Replicate(
        log=math.log(end),
        nodes=nodes_of(curve.log),
        seed=seed_of(curve.log),
        stretches=tuple(map(math.log, stretches)),
        # Half a unit of the last printed digit: all records of a flat curve are rounded alike.
        blur=curve.blur + 0.5 * (decimal_grid(curve.loss) or 0.0) / end,
    )


def _of_two_curves(a: LossCurve, b: LossCurve, low: float, high: float) -> Contrast:
    """Compare two runs by the log ratio at the points that both have, or by interpolating b."""
    paired = pair_points(a, b, low, high)
    gap = np.log(paired.b / paired.a)
    parts = [_tail(paired.x, low, high, a.of), *_halves(paired.x, low, high)]
    if not all(part.any() for part in parts):
        return Contrast(mean=None, why="no common record near the end")
    around = [parts[2] if a.of == "loss" else np.ones_like(parts[0]), parts[1], parts[2]]
    mean, *further = (
        _part_mean(gap, part, paired, around=near) for part, near in zip(parts, around, strict=True)
    )
    return Contrast(mean=mean, unit=paired.unit, n=len(gap), further=tuple(further))


def _part_mean(gap: Floats, part: Floats, paired: "PairedCurves", *, around: Floats) -> Mean:
    """Return the log ratio of the mean losses over a part of the points.

    Its error is by the noise of the log ratio about a smooth trend over the points `around` it, or
    over all points if those are few.
    """
    value = math.log(float(paired.b[part].mean()) / float(paired.a[part].mean()))
    if not gap.any():
        return Mean(value=0.0, error=0.0)
    gap = gap[around] if around.sum() >= MIN_VALUES else gap
    if len(gap) < MIN_VALUES:
        return Mean(value=value)
    terms = next(terms for least, terms in TREND_TERMS if len(gap) >= least)
    noise = gap - trend(gap, terms=terms)
    effective = effective_number(noise, fitted=terms)
    variance = float(noise @ noise) / (len(gap) - terms) / max(1 - 1 / effective, 0.5)
    share = max(effective * float(part.sum()) / len(gap), 1.0)
    return Mean(value=value, error=math.sqrt(variance / share), freedom=max(effective - terms, 1.0))


@dataclass(frozen=True, kw_only=True)
class PairedCurves:
    """Two curves [n] on common points `x` [n]; `unit` is step if both recorded them."""

    x: Floats
    a: Floats
    b: Floats
    unit: Any


def pair_points(a: LossCurve, b: LossCurve, low: float, high: float) -> PairedCurves:
    """Return the points that both recorded if these are at least half of a curve's.

    Otherwise b is interpolated linearly at the points of a.
    """
    common, at_a, at_b = np.intersect1d(a.x, b.x, return_indices=True)
    inside = (common >= low) & (common <= high)
    points = min(((curve.x >= low) & (curve.x <= high)).sum() for curve in (a, b))
    if inside.sum() * 2 >= points and inside.any():
        return PairedCurves(
            x=common[inside], a=a.loss[at_a[inside]], b=b.loss[at_b[inside]], unit="step"
        )
    here = (a.x >= low) & (a.x <= high)
    return PairedCurves(
        x=a.x[here], a=a.loss[here], b=np.interp(a.x[here], b.x, b.loss), unit="run"
    )


def final_loss(log: RunLog, *, of: str = "loss") -> Mean | None:
    """Return the loss of a run: the mean of its last tenth, or the last evaluation `of`."""
    try:
        curve = loss_curve(log, by="step", of=of)
    except Unreadable:
        return None
    return mean_of(curve.loss[_tail(curve.x, curve.x[0], curve.x[-1], of)])


def exact_differences(a: RunLog, b: RunLog, *, of: str = "loss") -> dict[str, Any]:
    """Return whether the losses at common steps are equal, and where and how much they differ."""
    one, other = loss_curve(a, by="step", of=of), loss_curve(b, by="step", of=of)
    step, at_a, at_b = np.intersect1d(one.x, other.x, return_indices=True)
    if not len(step):
        raise Unreadable(f"{a.name} and {b.name}: no step was recorded in both")
    left, right = one.loss[at_a], other.loss[at_b]
    unlike = np.flatnonzero(left != right)
    size = np.maximum(np.abs(left), np.abs(right))
    relative = np.abs(right - left)[unlike] / size[unlike]
    return {
        "common_steps": len(step),
        "differing": len(unlike),
        "first_step": int(step[unlike[0]]) if len(unlike) else None,
        "largest_relative": float(relative.max()) if len(unlike) else 0.0,
        "exact": "different" if len(unlike) else "identical",
    }


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
