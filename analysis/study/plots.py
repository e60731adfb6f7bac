"""Plot the change that each factor of a study brings."""

from collections.abc import Sequence
from textwrap import shorten

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot import figure_of, plain
from analysis.study.ablation import Effect
from analysis.study.cells import METRICS

NAMES = {"images_per_s": "images per second", "gpu_gb": "peak memory"}
MAX_LABEL = 60


def effects_figure(found: Sequence[Effect]) -> Figure:
    """Return a panel per metric: a dot per pair of cells, the mean of each effect, its interval."""
    metrics = [metric for metric in METRICS if any(effect.metric == metric for effect in found)]
    rows = max(1, len(metrics))
    figure, panels = figure_of(rows=rows, height=1.2 + 2.4 * rows)
    for panel, metric in zip(panels, metrics, strict=False):
        _dots(panel, [effect for effect in found if effect.metric == metric], metric)
    return figure


def _dots(axes: Axes, effects: Sequence[Effect], metric: str) -> None:
    for y, effect in enumerate(effects):
        changes = 100 * np.expm1([*effect.changes.values()])
        axes.scatter(changes, np.full(len(changes), y), s=14, alpha=0.6)
        if (mean := effect.contrast.mean) is None:
            continue
        ratio = mean.estimate()
        if ratio.low is not None and ratio.high is not None:
            axes.plot(100 * np.expm1([ratio.low, ratio.high]), [y, y], lw=4, alpha=0.4, color="C0")
        axes.plot(100 * np.expm1(ratio.value), y, "|", ms=14, color="black")
    axes.set_yticks(range(len(effects)))
    axes.set_yticklabels([_short(f"{e.factor}: {e.before} to {e.after}") for e in effects])
    axes.axvline(0, lw=0.8, color="black")
    axes.set_xlabel(f"% change of {NAMES[metric]}")


def _short(text: str) -> str:
    """Return a label short enough for the plot: keys that vary together make long ones."""
    return plain(shorten(text, MAX_LABEL, placeholder=" ..."))
