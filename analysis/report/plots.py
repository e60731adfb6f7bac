"""The plots of a report, as SVG text."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.measure.loss import LossCurve
from analysis.measure.loss_plot import plot_losses, thinned
from analysis.plot import figure_of, plain, save

MOST_CURVES = 10
MOST_BARS = 40


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG text."""
    out = io.StringIO()
    save(figure, out)
    return out.getvalue()


def rates_plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """Plot steps per second of the first runs with intervals, the first run at the top."""
    rated = [row for row in rows if row["steps_per_s"] is not None][:MOST_BARS]
    figure, [axes] = figure_of(rows=1, height=0.9 + 0.28 * len(rated))
    for place, row in enumerate(rated):
        value, low, high = (row[f"steps_per_s{end}"] for end in ("", "_low", "_high"))
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], lw=5, alpha=0.35, color=f"C{place % 10}")
        axes.plot(value, place, "o", ms=5, color=f"C{place % 10}")
    axes.set_yticks(range(len(rated)))
    axes.set_yticklabels([plain(row["run"]) for row in rated])
    axes.invert_yaxis()
    axes.set_xlabel("steps per second")
    axes.set_xlim(left=0)
    return as_svg(figure)


def time_plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """Plot the time of the first runs by purpose, as shares of their wall time."""
    rows = rows[:MOST_BARS]
    parts = dict.fromkeys(name for row in rows for name in row if _is_part(name))
    # A longer line of the legend would be wider than the figure.
    lines = -(-len(parts) // 5)
    ncols = -(-len(parts) // max(lines, 1))
    figure, [axes] = figure_of(rows=1, height=1.0 + 0.25 * lines + 0.28 * len(rows))
    left = np.zeros(len(rows))
    for number, part in enumerate(parts):
        share = np.array([100 * row.get(part, 0.0) / row["wall_s"] for row in rows])
        label = part.removesuffix("_s")
        axes.barh(range(len(rows)), share, left=left, color=f"C{number % 10}", label=label)
        left += share
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([plain(row["run"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("% of the wall time")
    axes.margins(x=0, y=0.02)
    axes.legend(ncols=max(ncols, 1), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
    return as_svg(figure)


def _is_part(name: str) -> bool:
    return name.endswith("_s") and name not in ("wall_s", "queue_s", "end_to_end_steps_per_s")


def loss_plot(curves: Sequence[LossCurve], *, by: str) -> str:
    """Plot loss curves, each thinned to `POINTS`."""
    out = io.StringIO()
    plot_losses([thinned(curve) for curve in curves[:MOST_CURVES]], out, by=by)
    return out.getvalue()
