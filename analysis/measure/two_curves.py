"""The losses of two single runs point by point: their contrast, and whether they are equal."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.measure.loss_curve import LossCurve, loss_curve
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from analysis.stats.mean import MIN_VALUES, Mean, independent, trend
from analysis.stats.record_noise import is_running_mean
from analysis.stats.replicates import Contrast, Unit
from configs.errors import Unreadable

# (least values, terms of the trend that are removed): each term costs a degree of freedom.
TREND_TERMS = ((100, 4), (15, 2), (0, 1))
# So large a share of the degrees of freedom is kept: of few records chance may leave none.
LEAST_FREEDOM = 0.4


def contrast_of_curves(
    a: LossCurve, b: LossCurve, parts: Sequence[Floats], *, is_recorded: bool
) -> Contrast:
    """Compare the losses of two runs on one `x` [n] by their log ratio at each point.

    `parts` are the points [n] at the end, in the first half and in the second: the ratio of the end
    is the figure, the halves are `further` ones. `is_recorded` says that both runs recorded `x`.
    """
    gap = np.log(b.loss / a.loss)
    averages = [one.log.name for one in (a, b) if a.of == "loss" and is_running_mean(one.loss)]
    if averages:
        value = math.log(float(b.loss[parts[0]].mean() / a.loss[parts[0]].mean()))
        why = f"the loss of {averages[0]} is an average over too many records to tell its noise"
        return Contrast(mean=Mean(value=value), why=why)
    around = [parts[2] if a.of == "loss" else np.ones_like(parts[0]), parts[1], parts[2]]
    mean, *further = (
        _part_mean(gap, part, a, b, around=near) for part, near in zip(parts, around, strict=True)
    )
    unit: Unit = "step" if is_recorded else "run"
    return Contrast(mean=mean, unit=unit, n=len(gap), further=tuple(further))


def _part_mean(gap: Floats, part: Floats, a: LossCurve, b: LossCurve, *, around: Floats) -> Mean:
    """Return the log ratio of the mean losses over a part of the points.

    Its error is by the noise of the log ratio about a smooth trend over the points `around` it, or
    over all points if those are few.
    """
    value = math.log(float(b.loss[part].mean()) / float(a.loss[part].mean()))
    if not gap.any():
        return Mean(value=0.0, error=0.0)
    gap = gap[around] if around.sum() >= MIN_VALUES else gap
    if len(gap) < MIN_VALUES:
        return Mean(value=value)
    terms = next(terms for least, terms in TREND_TERMS if len(gap) >= least)
    noise = gap - trend(gap, terms=terms)
    variance, effective = independent(noise, fitted=terms)
    share = max(effective * float(part.sum()) / len(gap), 1.0)
    freedom = max(effective - terms, LEAST_FREEDOM * (len(gap) - terms))
    return Mean(value=value, error=math.sqrt(variance / share), freedom=freedom)


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
