"""Plot a study: the change by each factor, pair by pair, and curves over the batch size."""

from collections.abc import Sequence
from textwrap import shorten

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot import figure_of, plain
from analysis.study.ablation import Effect, other_levels
from analysis.study.cells import METRICS, Levels, StudyRuns

NAMES = {"images_per_s": "images per second", "gpu_gb": "peak memory"}
MAX_LABEL = 60
# A legend of more lines is not readable.
MAX_LEGEND = 8
BATCH = ("train.global_batch", "train.micro_batch")


def effects_figure(found: Sequence[Effect], study: StudyRuns) -> Figure:
    """Return a panel per metric (a dot per pair, mean and interval), and curves over batch."""
    metrics = [metric for metric in METRICS if any(effect.metric == metric for effect in found)]
    batch = next((f for f in study.factors if f.split(" + ")[0] in BATCH), None)
    rows = max(1, len(metrics)) * (2 if batch else 1)
    figure, panels = figure_of(rows=rows, height=1.2 + 2.4 * rows)
    for number, metric in enumerate(metrics):
        _dots(panels[number], [effect for effect in found if effect.metric == metric], metric)
        if batch:
            _curves(panels[len(metrics) + number], study, study.factors.index(batch), metric)
    return figure


def _dots(axes: Axes, effects: Sequence[Effect], metric: str) -> None:
    shown = [effect for effect in effects if effect.pairs]
    for y, effect in enumerate(shown):
        changes = 100 * np.expm1([pair.change for pair in effect.pairs])
        colours = ["C3" if pair in effect.unlike else "C0" for pair in effect.pairs]
        axes.scatter(changes, np.full(len(changes), y), s=14, c=colours, alpha=0.6)
        if effect.ratio.low is not None and effect.ratio.high is not None:
            ends = [100 * (effect.ratio.low - 1), 100 * (effect.ratio.high - 1)]
            axes.plot(ends, [y, y], lw=4, alpha=0.4, color="C0")
        axes.plot(100 * (effect.ratio.value - 1), y, "|", ms=14, color="black")
    axes.set_yticks(range(len(shown)))
    axes.set_yticklabels([_short(f"{e.factor}: {e.before} to {e.after}") for e in shown])
    axes.axvline(0, lw=0.8, color="black")
    axes.set_xlabel(f"% change of {NAMES[metric]}")


def _short(text: str) -> str:
    """Return a label short enough for the plot: keys that vary together make long ones."""
    return plain(shorten(text, MAX_LABEL, placeholder=" ..."))


def _curves(axes: Axes, study: StudyRuns, index: int, metric: str) -> None:
    """Plot a metric over the batch size, one line per setting of all other factors."""
    lines: dict[Levels, list[tuple[float, float]]] = {}
    for cell in study.cells:
        if metric in cell.measured and cell.levels[index].isdigit():
            point = (float(cell.levels[index]), cell.measured[metric])
            lines.setdefault(other_levels(cell.levels, index), []).append(point)
    for rest, points in lines.items():
        label = _short(", ".join(rest)) if len(lines) <= MAX_LEGEND else None
        axes.plot(*zip(*sorted(points), strict=True), "o-", lw=1, ms=3, label=label)
    if 1 < len(lines) <= MAX_LEGEND:
        title = _short(", ".join(other_levels(study.factors, index)))
        axes.legend(title=title, fontsize=7, title_fontsize=7, frameon=False)
    batches = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [f"{batch:g}" for batch in batches])
    axes.set_xlabel("batch")
    axes.set_ylabel(NAMES[metric])
