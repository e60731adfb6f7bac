"""Plots by matplotlib; the same input gives the same bytes."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
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
# Told apart with any colour vision (Okabe and Ito 2008), and black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
# Text as TrueType in PDF, and as outlines in SVG, so that no reader needs the font.
PAPER: Any = STYLE | {
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "axes.prop_cycle": cycler(color=COLOURS),
    "font.size": 7.5,
    "legend.fontsize": 6.5,
}


# The width of figures in inches while they are drawn for print, else None.
_PAPER_WIDTH: ContextVar[float | None] = ContextVar("paper_width", default=None)


@contextmanager
def on_paper(width: float) -> Iterator[None]:
    """Draw figures `width` inches wide, in the size and colours of print."""
    token = _PAPER_WIDTH.set(width)
    try:
        with mpl.rc_context(PAPER):
            yield
    finally:
        _PAPER_WIDTH.reset(token)


def _style() -> Any:
    return PAPER if _PAPER_WIDTH.get() else STYLE


def figure_of(
    *, rows: int, height: float, ratios: list[int] | None = None, shared: bool = False
) -> tuple[Figure, list[Any]]:
    """Return a figure, 8 inches wide or as `on_paper` says, and its panels from top to bottom."""
    with mpl.rc_context(_style()):
        figure = Figure(figsize=(_PAPER_WIDTH.get() or 8, height), layout="constrained")
        panels = figure.subplots(rows, 1, squeeze=False, sharex=shared, height_ratios=ratios)
    return figure, list(panels[:, 0])


def save(figure: Figure, path: Any) -> None:
    """Write the figure to a PNG, SVG or PDF, a path or (as SVG) a text stream."""
    form = path.suffix[1:] if isinstance(path, Path) else "svg"
    undated = {"svg": "Date", "png": "Software", "pdf": "CreationDate"}
    with (
        mpl.rc_context(_style()),
        replacing(path) if isinstance(path, Path) else nullcontext(path) as file,
    ):
        figure.savefig(file, dpi=150, format=form, metadata={undated[form]: None})


def legend(axes: Any, **inside: Any) -> None:
    """Add a legend, with the options `inside` the axes; on paper above them, to hide nothing."""
    width, (_, labels) = _PAPER_WIDTH.get(), axes.get_legend_handles_labels()
    if width and labels:
        columns = max(1, int((width - 0.5) / (0.35 + 0.05 * max(map(len, labels)))))
        inside = {"ncols": columns, "loc": "lower left", "bbox_to_anchor": (0, 1)}
    if labels:
        axes.legend(frameon=False, **inside)


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
