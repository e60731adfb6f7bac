"""Plot loss curves and their ratios to the first one."""

from typing import Any

import numpy as np

from analysis.measure.loss import AXES, LossCurve
from analysis.plot import figure_of, plain, plain_ticks, save

# The ratio axis spans at least 1 -+ this, so that differences of rounding look like none.
_MIN_SPREAD = 0.01


def plot_losses(curves: list[LossCurve], path: Any, *, by: str) -> None:
    """Save loss curves and, below them, their ratios to the first; PNG or SVG."""
    figure, (top, below) = figure_of(rows=2, height=6, ratios=[3, 1], shared=True)
    first = curves[0]
    for number, curve in enumerate(curves):
        colour, name = f"C{number % 10}", plain(curve.log.name)
        top.plot(curve.x, curve.loss, lw=1.2, color=colour, label=name, alpha=0.85)
        inside = (curve.x >= first.x[0]) & (curve.x <= first.x[-1])
        if number and inside.any():
            x = curve.x[inside]
            ratio = curve.loss[inside] / np.interp(x, first.x, first.loss)
            below.plot(x, ratio, lw=1.2, color=colour)
    if all((curve.loss > 0).all() for curve in curves):
        top.set_yscale("log")
        plain_ticks(top)
    top.set_ylabel("loss")
    top.legend(frameon=False)
    below.axhline(1, color="C0", lw=0.8)
    low, high = below.get_ylim()
    below.set_ylim(min(low, 1 - _MIN_SPREAD), max(high, 1 + _MIN_SPREAD))
    below.ticklabel_format(axis="y", useOffset=False)
    below.set_ylabel("ratio to first")
    below.set_xlabel(AXES[by])
    save(figure, path)
