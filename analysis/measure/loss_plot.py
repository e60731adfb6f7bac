"""Plot loss curves and their ratios to the first one, of runs or of arms with their intervals."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.measure.loss_curve import AXES, LossCurve
from analysis.plot import figure_of, legend, plain, plain_ticks, save
from analysis.stats.contrast import FEWEST, one_sample

# The ratio axis spans at least 1 -+ this, so that differences of rounding look like none.
_MIN_SPREAD = 0.01
POINTS = 400


def plot_losses(curves: list[LossCurve], path: Any, *, by: str) -> None:
    """Save loss curves and, below them, their ratios to the first; PNG or SVG."""
    names = [curve.log.name for curve in curves]
    save(losses_figure([[curve] for curve in curves], names, by=by, height=6), path)


def losses_figure(
    arms: Sequence[Sequence[LossCurve]],
    labels: Sequence[str],
    *,
    by: str,
    height: float,
    of: str = "loss",
) -> Figure:
    """Return the curves `of` labelled arms and, below several, their ratios to the first arm's.

    Of three or more seeds it shows the geometric mean with its 95 % interval, of fewer each curve.
    """
    ratios = [3, 1] if len(arms) > 1 else [1]
    figure, panels = figure_of(rows=len(ratios), height=height, ratios=ratios, shared=True)
    top, below = panels[0], panels[-1]
    for number, (arm, label) in enumerate(zip(arms, labels, strict=True)):
        _series(top, arm, number, plain(label))
        if number:
            quotients = [_ratio(curve, arms[0]) for curve in arm]
            _series(below, [one for one in quotients if len(one.x)], number, None)
    if all((curve.loss > 0).all() for arm in arms for curve in arm):
        top.set_yscale("log")
        plain_ticks(top)
    top.set_ylabel(of.replace("_", " "))
    legend(top)
    below.set_xlabel(AXES[by])
    if len(arms) > 1:
        below.axhline(1, color="C0", lw=0.8)
        low, high = below.get_ylim()
        below.set_ylim(min(low, 1 - _MIN_SPREAD), max(high, 1 + _MIN_SPREAD))
        below.ticklabel_format(axis="y", useOffset=False)
        below.set_ylabel("ratio to first")
    return figure


def _series(axes: Any, curves: Sequence[LossCurve], number: int, label: str | None) -> None:
    # Every other line is broken, so that equal losses of two arms are seen.
    dashes = (0, (4, 1.5)) if number % 2 else "-"
    style: Any = {"lw": 1.2, "alpha": 0.85, "color": f"C{number % 10}", "ls": dashes}
    x = curves[0].x if curves else np.empty(0)
    for curve in curves:
        x = x[(x >= curve.x[0]) & (x <= curve.x[-1])]
    is_positive = all((curve.loss > 0).all() for curve in curves)
    if len(curves) < FEWEST or not is_positive or not len(x):
        for place, curve in enumerate(curves):
            axes.plot(curve.x, curve.loss, label=None if place else label, **style)
        return
    logs = np.log([np.interp(x, curve.x, curve.loss) for curve in curves])
    found = [one_sample(column).estimate().map(math.exp) for column in logs.T]
    axes.plot(x, [one.value for one in found], label=label, **style)
    ends = np.array([(one.low, one.high) for one in found], dtype=float).T
    axes.fill_between(x, *ends, color=style["color"], alpha=0.2, lw=0)


def _ratio(curve: LossCurve, base: Sequence[LossCurve]) -> LossCurve:
    """Return the ratio to the base's curve of the same seed, else to its first, where both are."""
    seed = (curve.log.config or {}).get("seed")
    same = (one for one in base if (one.log.config or {}).get("seed") == seed)
    other = next(same, base[0])
    inside = (curve.x >= other.x[0]) & (curve.x <= other.x[-1])
    x = curve.x[inside]
    ratio = curve.loss[inside] / np.interp(x, other.x, other.loss)
    return replace(curve, x=x, loss=ratio, step=curve.step[inside])


def thinned(curve: LossCurve) -> LossCurve:
    """Return the medians of `POINTS` equal stretches if a curve has more points."""
    if len(curve.x) <= POINTS:
        return curve
    parts = np.array_split(np.arange(len(curve.x)), POINTS)
    return replace(
        curve,
        x=np.array([np.median(curve.x[part]) for part in parts]),
        loss=np.array([np.median(curve.loss[part]) for part in parts]),
        step=np.array([np.median(curve.step[part]) for part in parts]),
    )
