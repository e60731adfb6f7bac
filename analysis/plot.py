"""Plots by matplotlib; the same input gives the same bytes."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from configs.disk import replacing
from configs.terminal import printable

STYLE: Any = {
    "svg.hashsalt": "ditbench",
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
    """Return a figure, eight inches wide, of panels one above the other, and the panels."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, height), layout="constrained")
        panels = figure.subplots(rows, 1, squeeze=False, sharex=shared, height_ratios=ratios)
    return figure, list(panels[:, 0])


def save(figure: Figure, path: Any) -> None:
    """Write the figure to a PNG or SVG, a path or (as SVG) a text stream."""
    svg = not isinstance(path, Path) or path.suffix == ".svg"
    with (
        mpl.rc_context(STYLE),
        replacing(path) if isinstance(path, Path) else nullcontext(path) as file,
    ):
        figure.savefig(
            file,
            dpi=150,
            format="svg" if svg else "png",
            metadata={"Date": None} if svg else {"Software": None},
        )


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
