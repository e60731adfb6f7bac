"""Plot a study: its cells, the change by each factor, and scaling."""

from collections.abc import Mapping, Sequence
from textwrap import fill, shorten
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.measure.scaling import ScalingCurve
from analysis.plot import figure_of, legend, plain
from analysis.study.ablation import Effect
from analysis.study.cells import METRICS
from analysis.table import interval_text
from configs.table import heading

NAMES = {"images_per_s": "images per second", "gpu_gb": "peak memory"}
MAX_LABEL = 60


def cells_figure(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], *, label_chars: int
) -> Figure:
    """Return a dot per row of `cell_rows` with its interval, and the figures beside it.

    A dot is filled if the loss is the same as the first cell's, which is the baseline at 1. A
    single cell has its steps (or other units) per second instead.
    """
    ends = {"ratio": ("low", "high")} | {
        name: (f"{name}_low", f"{name}_high") for name in ("steps_per_s", "units_per_s")
    }
    name = next((name for name in ends if any(row[name] for row in rows)), "units_per_s")
    wrapped = [fill(plain(label), label_chars, break_long_words=False) for label in labels]
    heights = np.array([0.13 * (label.count("\n") + 1) + 0.06 for label in wrapped])
    places = np.cumsum(heights) - heights / 2
    figure, [axes] = figure_of(rows=1, height=float(heights.sum()) + 0.45)
    texts = []
    for number, (row, y) in enumerate(zip(rows, places, strict=True)):
        value, low, high = (row[column] for column in (name, *ends[name]))
        value = 1.0 if name == "ratio" and not number else value
        same = not number or row["loss_word"] == "same"
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
    axes.set_xlabel("speedup, first cell = 1" if name == "ratio" else heading(name))
    return figure


def effects_figure(found: Sequence[Effect]) -> Figure:
    """Return a panel per metric: a dot per pair of cells, the mean of each effect, its interval."""
    metrics = [metric for metric in METRICS if any(effect.metric == metric for effect in found)]
    rows = max(1, len(metrics))
    figure, panels = figure_of(rows=rows, height=1.2 + 2.4 * rows)
    for panel, metric in zip(panels, metrics, strict=False):
        _dots(panel, [effect for effect in found if effect.metric == metric], metric)
    return figure


def _dots(axes: Axes, effects: Sequence[Effect], metric: str) -> None:
    shown = [effect for effect in effects if effect.pairs]
    for y, effect in enumerate(shown):
        changes = 100 * np.expm1([pair.change for pair in effect.pairs])
        colours = ["C3" if pair in effect.unlike else "C0" for pair in effect.pairs]
        axes.scatter(changes, np.full(len(changes), y), s=14, c=colours, alpha=0.6)
        ratio = effect.ratio
        if ratio is None:
            continue
        if ratio.low is not None and ratio.high is not None:
            ends = [100 * (ratio.low - 1), 100 * (ratio.high - 1)]
            axes.plot(ends, [y, y], lw=4, alpha=0.4, color="C0")
        axes.plot(100 * (ratio.value - 1), y, "|", ms=14, color="black")
    axes.set_yticks(range(len(shown)))
    axes.set_yticklabels([_short(f"{e.factor}: {e.before} to {e.after}") for e in shown])
    axes.axvline(0, lw=0.8, color="black")
    axes.set_xlabel(f"% change of {NAMES[metric]}")


def _short(text: str) -> str:
    """Return a label short enough for the plot: keys that vary together make long ones."""
    return plain(shorten(text, MAX_LABEL, placeholder=" ..."))


def scaling_figure(curves: Sequence[ScalingCurve]) -> Figure:
    """Return speedups and, below them, efficiencies; the dotted line is ideal scaling."""
    figure, panels = figure_of(rows=2, height=3.4, ratios=[3, 2], shared=True)
    counts = sorted({row["ranks"] for curve in curves for row in curve.rows})
    for number, curve in enumerate(curves):
        # Side by side, so that intervals at one number of ranks do not hide each other.
        aside = 1 + 0.015 * (number - (len(curves) - 1) / 2)
        label = plain(f"{curve.kind}: {min(curve.names).replace('_', ', ')}, ...")
        columns = (("ratio", "low", "high"), ("efficiency", "efficiency_low", "efficiency_high"))
        for axes, names in zip(panels, columns, strict=True):
            name = "speedup" if names[0] == "ratio" else names[0]
            first = {"ratio": 1.0, "efficiency": 1.0}
            rows = [row | first if row["word"] is None else row for row in curve.rows]
            rows = [row for row in rows if row[names[0]]]
            x, y = ([row[key] for row in rows] for key in ("ranks", names[0]))
            low, high = ([row[end] or np.nan for row in rows] for end in names[1:])
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
