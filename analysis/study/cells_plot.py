"""Plot the cells of a study: speedup over the first cell, or the rate of a single cell."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.plot import figure_of, plain
from analysis.table import interval_text

# The height of a line of a label, in inches.
_LINE = 0.13


def cells_figure(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], *, label_chars: int
) -> Figure:
    """Return a dot per row of `cell_rows` with its interval, and the figures beside it.

    A dot is filled if the loss is the same as the first cell's, which is the baseline at 1. A
    single cell has its steps (or other units) per second instead.
    """
    names = ("speedup", "steps_per_s", "units_per_s")
    name = next((name for name in names if any(row[name] for row in rows)), names[-1])
    wrapped = [fill(plain(label), label_chars, break_long_words=False) for label in labels]
    heights = np.array([(label.count("\n") + 1) * _LINE + 0.06 for label in wrapped])
    places = np.cumsum(heights) - heights / 2
    figure, [axes] = figure_of(rows=1, height=float(heights.sum()) + 0.45)
    texts = []
    for row, y in zip(rows, places, strict=True):
        is_base = row is rows[0] and name == "speedup"
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        value = 1.0 if is_base else value
        if low is not None and high is not None:
            axes.plot([low, high], [y, y], lw=1.4, color="C0", solid_capstyle="butt")
        if value is not None:
            is_same = row is rows[0] or row["verdict"] == "same loss"
            axes.plot(value, y, "o", ms=4, mew=0.9, color="C0", mfc="C0" if is_same else "white")
        known = "no rate" if value is None else f"{value:.3g} {interval_text(low, high, '.3g')}"
        texts.append(known.strip())
    axes.set_yticks(places, wrapped)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(places, texts)
    beside.spines["right"].set_visible(False)
    for side in (axes, beside):
        side.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(heights.sum(), 0)
    if name == "speedup":
        axes.axvline(1, lw=0.8, color="black", zorder=0)
    is_ratio = name == "speedup"
    axes.set_xlabel(
        "speedup over the baseline" if is_ratio else name.replace("_per_s", " per second")
    )
    return figure
