"""Loss curves at common places of their axis.

A training loss is the mean since the record before, so that records of unlike length, at the same
step, are of unlike parts of the training. An evaluation is of one step.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.measure.loss_curve import LossCurve
from analysis.stats.intervals import Floats
from configs.errors import Unreadable

# Evaluations at steps that all have count if the last of these is within this share of the end.
NEAR_END = 0.1
# Of the first place beyond 0, so that 0 has a logarithm.
NEAR_ZERO = 1e-3


def aligned(curves: Sequence[LossCurve]) -> tuple[list[LossCurve], bool]:
    """Return curves on one `x`, and whether all of them recorded it.

    Training losses are averaged over the spans between the records of the coarsest curve.
    Evaluations are those at the points that all have, or else, if the last of these is not near the
    end, interpolated at the points of the curve that has the fewest. Raise `Unreadable` if the
    curves have no range in common.
    """
    of = curves[0].of
    low, high = max(begin_of(curve) for curve in curves), min(curve.x[-1] for curve in curves)
    if of == "loss":
        return _over_spans(curves, low, high)
    common = curves[0].x
    for curve in curves:
        common = common[np.isin(common, curve.x)]
    if len(common) and common[-1] >= high - NEAR_END * (high - low):
        rows = [np.isin(curve.x, common) for curve in curves]
        taken = zip(curves, rows, strict=True)
        return [replace(curve, x=common, loss=curve.loss[own]) for curve, own in taken], True
    if low > high:
        raise Unreadable("no range in common")
    inside = [curve.x[(curve.x >= low) & (curve.x <= high)] for curve in curves]
    fewest = min(filter(len, inside), key=len)
    x = np.union1d(fewest, [high])
    return [_interpolated(curve, x) for curve in curves], False


def begin_of(curve: LossCurve) -> float:
    """Return where a curve begins: a training loss as far before its first record as they lie."""
    if curve.of != "loss" or len(curve.x) < 2:
        return float(curve.x[0]) if curve.of != "loss" else 0.0
    return float(curve.x[0] - np.median(np.diff(curve.x)))


def _over_spans(
    curves: Sequence[LossCurve], low: float, high: float
) -> tuple[list[LossCurve], bool]:
    edges = min((_edges(curve, low, high) for curve in curves), key=len)
    if len(edges) < 2:
        raise Unreadable("no range in common")
    x = edges[1:]
    is_recorded = all(np.isin(x, curve.x).all() for curve in curves)
    return [_averaged(curve, edges) for curve in curves], is_recorded


def _edges(curve: LossCurve, low: float, high: float) -> Floats:
    """Return the ends [n + 1] of the spans of a training loss that lie within a range."""
    ends = np.concatenate([[begin_of(curve)], curve.x])
    slack = 1e-9 * (high - low)
    return np.asarray(ends[(ends >= low - slack) & (ends <= high + slack)])


def _averaged(curve: LossCurve, edges: Floats) -> LossCurve:
    """Return the mean of a training loss over each span; its log may be off by `blur`.

    Other trainers may print the loss of a step, not the mean since the record before: then one at
    the end of a span is of half a span later.
    """
    x = edges[1:]
    own = curve.x[(curve.x > edges[0]) & (curve.x <= x[-1])]
    if np.array_equal(own, x):
        return replace(curve, x=x, loss=curve.loss[np.isin(curve.x, x)])
    ends = np.concatenate([[begin_of(curve)], curve.x])
    sums = np.concatenate([[0.0], np.cumsum(curve.loss * np.diff(ends))])
    loss = np.diff(np.interp(edges, ends, sums)) / np.diff(edges)
    late = loss[len(loss) // 2 :] if len(loss) > 3 else loss
    blur = 0.0
    if curve.log.format != "ditbench" and len(late) > 1 and (late > 0).all():
        blur = abs(math.log(late[-1] / late[0])) / (len(late) - 1) / 2
    return replace(curve, x=x, loss=loss, blur=blur)


def _interpolated(curve: LossCurve, x: Floats) -> LossCurve:
    """Return evaluations at `x` [n], over the log of the axis; the last may be off by `blur`."""
    # From a first evaluation at 0 it may have fallen at once.
    least = NEAR_ZERO * float(curve.x[curve.x > 0].min())
    loss = np.interp(np.log(x + least), np.log(curve.x + least), curve.loss)
    straight, end = float(np.interp(x[-1], curve.x, curve.loss)), float(loss[-1])
    blur = abs(math.log(straight / end)) if min(straight, end) > 0 else 0.0
    return replace(curve, x=x, loss=loss, blur=blur)
