"""Plots of a study: the change that each factor brings, cell by cell, and curves over batch."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot import figure_of, plain, save
from analysis.study.ablation import Effect
from analysis.study.cells import METRICS, StudyRuns

NAMES = {"images_per_s": "images per second", "gpu_gb": "peak memory"}
LONGEST = 60
# Of more lines no legend could be read.
MOST_NAMED = 8
BATCH = ("train.global_batch", "train.micro_batch")


def plot_effects(found: Sequence[Effect], study: StudyRuns, path: Path) -> None:
    """Save `effects_figure` as .png or .svg."""
    save(effects_figure(found, study), path)


def effects_figure(found: Sequence[Effect], study: StudyRuns) -> Figure:
    """A panel per metric: each pair a dot, the mean with its interval; below, curves over batch."""
    told = [metric for metric in METRICS if any(effect.metric == metric for effect in found)]
    batch = next((f for f in study.factors if f.split(" + ")[0] in BATCH), None)
    rows = max(1, len(told)) * (2 if batch else 1)
    figure, panels = figure_of(rows=rows, height=1.2 + 2.4 * rows)
    for number, metric in enumerate(told):
        _dots(panels[number], [effect for effect in found if effect.metric == metric], metric)
        if batch:
            _curves(panels[len(told) + number], study, study.factors.index(batch), metric)
    return figure


def _dots(axes: Axes, effects: Sequence[Effect], metric: str) -> None:
    shown = [effect for effect in effects if effect.pairs]
    for place, effect in enumerate(shown):
        changes = 100 * np.expm1([pair.change for pair in effect.pairs])
        odd = [pair in effect.unlike for pair in effect.pairs]
        colours = ["C3" if far else "C0" for far in odd]
        axes.scatter(changes, np.full(len(changes), place), s=14, c=colours, alpha=0.6)
        if effect.ratio.low is not None and effect.ratio.high is not None:
            ends = [100 * (effect.ratio.low - 1), 100 * (effect.ratio.high - 1)]
            axes.plot(ends, [place, place], lw=4, alpha=0.4, color="C0")
        axes.plot(100 * (effect.ratio.value - 1), place, "|", ms=14, color="black")
    axes.set_yticks(range(len(shown)))
    axes.set_yticklabels([_short(f"{e.factor}: {e.before} to {e.after}") for e in shown])
    axes.axvline(0, lw=0.8, color="black")
    axes.set_xlabel(f"% change of {NAMES[metric]}")


def _short(text: str) -> str:
    """A label that leaves room for the plot: keys that vary together may have many names."""
    return plain(shorten(text, LONGEST, placeholder=" ..."))


def _curves(axes: Axes, study: StudyRuns, index: int, metric: str) -> None:
    """A metric over the batch size, one line per setting of everything else: all should rise."""
    lines: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for cell in study.cells:
        if metric in cell.measured and cell.levels[index].isdigit():
            rest = cell.levels[:index] + cell.levels[index + 1 :]
            lines.setdefault(rest, []).append((float(cell.levels[index]), cell.measured[metric]))
    for rest, points in lines.items():
        label = _short(", ".join(rest)) if len(lines) <= MOST_NAMED else None
        axes.plot(*zip(*sorted(points), strict=True), "o-", lw=1, ms=3, label=label)
    if 1 < len(lines) <= MOST_NAMED:
        others = [name for place, name in enumerate(study.factors) if place != index]
        axes.legend(title=_short(", ".join(others)), fontsize=7, title_fontsize=7, frameon=False)
    batches = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [f"{batch:g}" for batch in batches])
    axes.set_xlabel("batch")
    axes.set_ylabel(NAMES[metric])
