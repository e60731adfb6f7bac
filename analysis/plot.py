"""Plots by matplotlib; the same input gives the same bytes."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

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


def figure_of(
    *, rows: int, height: float, ratios: list[int] | None = None, shared: bool = False
) -> tuple[Figure, list[Any]]:
    """Return a figure, 8 inches wide, and its panels from top to bottom."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, height), layout="constrained")
        panels = figure.subplots(rows, 1, squeeze=False, sharex=shared, height_ratios=ratios)
    return figure, list(panels[:, 0])


def save(figure: Figure, path: Path) -> None:
    """Write the figure to a PNG, SVG or PDF."""
    form = path.suffix[1:]
    undated = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
    with mpl.rc_context(STYLE), replacing(path) as file:
        figure.savefig(file, dpi=150, format=form, metadata={undated[form]: None})


def legend(axes: Any, **options: Any) -> None:
    """Add a legend if a line has a label."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, **options)


def plain_ticks(axes: Any) -> None:
    """Label a logarithmic axis with plain numbers: 0.4 is easier to read than 4 x 10^-1.

    Losses seldom span a decade; on an axis of one or two decades 1, 2 and 5 are labelled.
    """
    low, high = axes.get_ylim()
    if 10 * low <= high < 300 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:.4g}")
    axes.yaxis.set_minor_formatter("{x:.3g}" if high < 10 * low else "")


def plain(text: str) -> str:
    """Return text without matplotlib's mathematics and its mark of hidden legend entries."""
    shown = printable(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
