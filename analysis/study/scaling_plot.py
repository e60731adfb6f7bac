"""Plot speedup and efficiency over the number of ranks, with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.measure.scaling import ScalingCurve
from analysis.plot import figure_of, legend, plain


def scaling_figure(curves: Sequence[ScalingCurve]) -> Figure:
    """Return speedups and, below them, efficiencies; the dotted line is ideal scaling."""
    figure, panels = figure_of(rows=2, height=3.4, ratios=[3, 2], shared=True)
    counts = sorted({row["ranks"] for curve in curves for row in curve.rows})
    for number, curve in enumerate(curves):
        # Side by side, so that intervals at one number of ranks do not hide each other.
        aside = 1 + 0.015 * (number - (len(curves) - 1) / 2)
        label = plain(f"{curve.kind}: {min(curve.names).replace('_', ', ')}, ...")
        for axes, name in zip(panels, ("speedup", "efficiency"), strict=True):
            rows = [row for row in curve.rows if row[name]]
            x, y = ([row[key] for row in rows] for key in ("ranks", name))
            low, high = (
                [row[f"{name}{end}"] or np.nan for row in rows] for end in ("_low", "_high")
            )
            ends = np.nan_to_num([np.subtract(y, low), np.subtract(high, y)])
            style: Any = {"color": f"C{number}", "capsize": 2, "ms": 3, "lw": 1, "label": label}
            axes.errorbar(np.multiply(x, aside), y, ends, fmt="o-", **style)
            axes.set_ylabel(name)
    top, below = panels
    top.plot(counts, np.divide(counts, counts[0]), ":", lw=0.9, color="0.4", label="ideal")
    below.axhline(1, ls=":", lw=0.9, color="0.4")
    top.set_yscale("log", base=2)
    top.yaxis.set_major_formatter("{x:g}")
    below.set_xscale("log", base=2)
    below.set_ylim(bottom=0)
    below.set_xticks(counts, map(str, counts))
    below.set_xlabel("ranks")
    legend(top)
    return figure
