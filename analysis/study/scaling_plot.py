"""Plot speedup and efficiency over the number of ranks, with intervals and Amdahl's law."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.measure.scaling import ScalingCurve
from analysis.plot import figure_of, legend, plain
from analysis.stats.intervals import Floats


def scaling_figure(curves: Sequence[ScalingCurve], labels: Sequence[str]) -> Figure:
    """Return speedups and, below them, efficiencies of labelled curves; both axes of ranks alike.

    The dotted line is ideal scaling; a fit of Amdahl's law is dashed.
    """
    figure, (top, below) = figure_of(rows=2, height=3.4, ratios=[3, 2], shared=True)
    counts = sorted({row["ranks"] for curve in curves for row in curve.rows})
    for number, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        # Side by side, so that intervals at one number of ranks do not hide each other.
        aside = 1 + 0.015 * (number - (len(curves) - 1) / 2)
        x = np.array([row["ranks"] for row in curve.rows], dtype=float) * aside
        for axes, name in ((top, "speedup"), (below, "efficiency")):
            value, low, high = (_column(curve, f"{name}{end}") for end in ("", "_low", "_high"))
            ends = np.nan_to_num([value - low, high - value])
            style: Any = {"color": f"C{number}", "capsize": 2, "ms": 3, "lw": 1}
            axes.errorbar(x, value, ends, fmt="o-", label=plain(label), **style)
        if curve.serial:
            least = counts[0]
            share = curve.serial.value + (1 - curve.serial.value) * least / np.array(counts)
            top.plot(counts, 1 / share, "--", lw=0.8, color=f"C{number}")
    top.plot(counts, np.array(counts) / counts[0], ":", lw=0.9, color="0.4", label="ideal")
    below.axhline(1, ls=":", lw=0.9, color="0.4")
    for axes in (top, below):
        axes.set_xscale("log", base=2)
    top.set_yscale("log", base=2)
    top.yaxis.set_major_formatter("{x:g}")
    below.set_ylim(0, max(1.1, below.get_ylim()[1]))
    below.set_xticks(counts, [str(count) for count in counts])
    below.minorticks_off()
    top.set_ylabel("speedup")
    below.set_ylabel("efficiency")
    below.set_xlabel("ranks")
    legend(top)
    return figure


def _column(curve: ScalingCurve, name: str) -> Floats:
    return np.array([np.nan if row[name] is None else row[name] for row in curve.rows])
