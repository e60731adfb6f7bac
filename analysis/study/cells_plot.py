"""Plot the cells of a study: speedup over the first cell, or the rate of a single cell."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.plot import figure_of, plain
from analysis.table import interval_text
from configs.table import heading


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
    heights = np.array([0.13 * (label.count("\n") + 1) + 0.06 for label in wrapped])
    places = np.cumsum(heights) - heights / 2
    figure, [axes] = figure_of(rows=1, height=float(heights.sum()) + 0.45)
    texts = []
    for number, (row, y) in enumerate(zip(rows, places, strict=True)):
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        value = 1.0 if name == "speedup" and not number else value
        same = not number or row["verdict"] == "same loss"
        if value is not None:
            axes.plot(value, y, "o", ms=4, mew=0.9, color="C0", mfc="C0" if same else "white")
        if low is not None:
            axes.plot([low, high], [y, y], lw=1.4, color="C0", zorder=1)
        texts.append(f"{value or np.nan:.3g} {interval_text(low, high, '.3g')}")
    beside = axes.secondary_yaxis("right")
    beside.spines["right"].set_visible(False)
    for side, shown in ((axes, wrapped), (beside, texts)):
        side.set_yticks(places, shown)
        side.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(heights.sum(), 0)
    axes.set_xlabel(f"{heading(name)}, first cell = 1" if name == "speedup" else heading(name))
    return figure
