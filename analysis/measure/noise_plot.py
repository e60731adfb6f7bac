"""Plot the noise scale over training and over t."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot import figure_of, legend, plain, plain_ticks

_STEPS_SHOWN = 4


def noise_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return B_simple of the rows of runs with intervals; undetermined scales leave gaps.

    The upper panel shows it over training, the lower one shows the first run's over t at some of
    its steps, if it has bins.
    """
    binned = [row for row in rows if row["run"] == rows[0]["run"] and row["t"] != "all"]
    count = 2 if binned else 1
    figure, panels = figure_of(rows=count, height=3.0 * count)
    for number, run in enumerate(dict.fromkeys(row["run"] for row in rows)):
        own = [row for row in rows if row["run"] == run and row["t"] == "all"]
        _series(panels[0], [row["step"] for row in own], own, color=f"C{number}", label=run)
    _finish(panels[0], "step")
    steps = sorted({row["step"] for row in binned})
    picked = np.unique(np.linspace(0, len(steps) - 1, _STEPS_SHOWN).round().astype(int))
    for number, place in enumerate(picked if steps else ()):
        own = [row for row in binned if row["step"] == steps[place]]
        middles = [sum(map(float, row["t"].split("-"))) / 2 for row in own]
        _series(panels[1], middles, own, color=f"C{number}", label=f"step {steps[place]}")
    if binned:
        _finish(panels[1], "t")
    return figure


def _series(
    axes: Axes, x: Sequence[float], rows: Sequence[Mapping[str, Any]], *, color: str, label: str
) -> None:
    # NaN breaks the line, so that it never crosses an undetermined scale.
    value, low, high = (
        np.array([row[name] for row in rows], dtype=np.float64)
        for name in ("b_simple", "b_simple_low", "b_simple_high")
    )
    axes.plot(x, value, marker="o", ms=3, lw=1, color=color, label=plain(label))
    axes.vlines(x, low, high, lw=2, alpha=0.3, color=color)


def _finish(axes: Axes, xlabel: str) -> None:
    axes.set_yscale("log")
    plain_ticks(axes)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("B_simple, images")
    legend(axes, fontsize=6, ncols=2)
