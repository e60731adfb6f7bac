"""Plot loss curves of runs and, below them, their ratios to the first, by matplotlib.

The same input gives the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from analysis.measure.loss_curve import AXES, LossCurve
from configs.disk import replacing
from configs.terminal import printable

# Text is TrueType in PDF, which journals ask for.
STYLE: Any = {
    "svg.hashsalt": "ditbench",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "font.size": 9,
}
# The ratio axis spans at least 1 -+ this, so that differences of rounding look like none.
_MIN_SPREAD = 0.01


def plot_losses(curves: Sequence[LossCurve], path: Path, *, by: str) -> None:
    """Save loss curves as PNG, SVG or PDF, with their ratios to the first where both are."""
    form = path.suffix[1:]
    undated = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
    with mpl.rc_context(STYLE), replacing(path) as file:
        figure = _figure(curves, by)
        figure.savefig(file, dpi=150, format=form, metadata={undated[form]: None})


def _figure(curves: Sequence[LossCurve], by: str) -> Figure:
    figure = Figure(figsize=(8, 6), layout="constrained")
    ratios = [3, 1] if len(curves) > 1 else [1]
    panels = figure.subplots(len(ratios), 1, squeeze=False, sharex=True, height_ratios=ratios)
    top, below = panels[0, 0], panels[-1, 0]
    base = curves[0]
    for number, curve in enumerate(curves):
        # Every other line is broken, so that equal losses of two runs are seen.
        dashes = (0, (4, 1.5)) if number % 2 else "-"
        style: Any = {"lw": 1.2, "alpha": 0.85, "color": f"C{number % 10}", "ls": dashes}
        top.plot(curve.x, curve.loss, label=_plain(curve.log.name), **style)
        if number:
            inside = (curve.x >= base.x[0]) & (curve.x <= base.x[-1])
            x = curve.x[inside]
            below.plot(x, curve.loss[inside] / np.interp(x, base.x, base.loss), **style)
    if all((curve.loss > 0).all() for curve in curves):
        top.set_yscale("log")
        _plain_ticks(top)
    top.set_ylabel(base.of.replace("_", " "))
    top.legend()
    below.set_xlabel(AXES[by])
    if len(curves) > 1:
        below.axhline(1, color="C0", lw=0.8)
        low, high = below.get_ylim()
        below.set_ylim(min(low, 1 - _MIN_SPREAD), max(high, 1 + _MIN_SPREAD))
        below.ticklabel_format(axis="y", useOffset=False)
        below.set_ylabel("ratio to first")
    return figure


def _plain_ticks(axes: Any) -> None:
    """Label a logarithmic axis with plain numbers: 0.4 is easier to read than 4 x 10^-1.

    Losses seldom span a decade; on an axis of one or two decades 1, 2 and 5 are labelled.
    """
    low, high = axes.get_ylim()
    if 10 * low <= high < 300 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:.4g}")
    axes.yaxis.set_minor_formatter("{x:.3g}" if high < 10 * low else "")


def _plain(text: str) -> str:
    """Return text without matplotlib's mathematics and its mark of hidden legend entries."""
    shown = printable(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
