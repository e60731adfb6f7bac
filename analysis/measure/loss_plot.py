"""Plot loss curves of runs and, below them, their ratios to the first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.loss_curve import AXES, LossCurve
from analysis.plot import figure_of, legend, plain, plain_ticks, save

# The ratio axis spans at least 1 -+ this, so that differences of rounding look like none.
_MIN_SPREAD = 0.01


def plot_losses(curves: Sequence[LossCurve], path: Path, *, by: str) -> None:
    """Save loss curves and, below several, their ratios to the first where both are."""
    ratios = [3, 1] if len(curves) > 1 else [1]
    figure, panels = figure_of(rows=len(ratios), height=6, ratios=ratios, shared=True)
    top, below = panels[0], panels[-1]
    base = curves[0]
    for number, curve in enumerate(curves):
        # Every other line is broken, so that equal losses of two runs are seen.
        dashes = (0, (4, 1.5)) if number % 2 else "-"
        style: Any = {"lw": 1.2, "alpha": 0.85, "color": f"C{number % 10}", "ls": dashes}
        top.plot(curve.x, curve.loss, label=plain(curve.log.name), **style)
        if number:
            inside = (curve.x >= base.x[0]) & (curve.x <= base.x[-1])
            x = curve.x[inside]
            below.plot(x, curve.loss[inside] / np.interp(x, base.x, base.loss), **style)
    if all((curve.loss > 0).all() for curve in curves):
        top.set_yscale("log")
        plain_ticks(top)
    top.set_ylabel(base.of.replace("_", " "))
    legend(top)
    below.set_xlabel(AXES[by])
    if len(curves) > 1:
        below.axhline(1, color="C0", lw=0.8)
        low, high = below.get_ylim()
        below.set_ylim(min(low, 1 - _MIN_SPREAD), max(high, 1 + _MIN_SPREAD))
        below.ticklabel_format(axis="y", useOffset=False)
        below.set_ylabel("ratio to first")
    save(figure, path)
