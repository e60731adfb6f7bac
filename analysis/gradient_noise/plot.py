"""Plot the noise scale over training and over t."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.gradient_noise.table import BinNoise, StageNoise
from analysis.plot import figure_of, legend, plain, plain_ticks
from analysis.stats.noise_scale import NoiseScale

_STAGES_SHOWN = 4


def noise_figure(runs: Sequence[tuple[str, list[StageNoise]]]) -> Figure:
    """Return B_simple of runs with intervals; undetermined scales leave gaps.

    The upper panel shows it over training, with a line per bin if there is one run. The lower one
    shows the first run over t at some of its stages, if it has bins.
    """
    rows = 2 if any(stage.bins for stage in runs[0][1]) else 1
    figure, panels = figure_of(rows=rows, height=3.0 * rows)
    for number, (name, stages) in enumerate(runs):
        points = [(float(stage.step), stage.scale) for stage in stages]
        color = "k" if len(runs) == 1 else f"C{number}"
        _series(panels[0], points, color=color, label=plain(name))
    if len(runs) == 1:
        _bins_over_training(panels[0], runs[0][1])
    _finish(panels[0], "step")
    if rows > 1:
        _bins_over_t(panels[1], runs[0][1])
        _finish(panels[1], "t")
    return figure


def _bins_over_training(axes: Axes, stages: list[StageNoise]) -> None:
    """Plot a line per bin, from blue (little noise in the image) to yellow."""
    count = max((len(_first_scope(stage)) for stage in stages), default=0)
    binned = [stage for stage in stages if len(_first_scope(stage)) == count]
    for k in range(count):
        points = [(float(stage.step), _first_scope(stage)[k].scale) for stage in binned]
        label = f"t {k / count:.4g}-{(k + 1) / count:.4g}"
        colour = mpl.colormaps["viridis"](0.05 + 0.85 * (k / max(1, count - 1)))
        _series(axes, points, color=colour, label=label)


def _bins_over_t(axes: Axes, stages: list[StageNoise]) -> None:
    """Plot a line per stage and scope, solid for the first scope."""
    shown = [stage for stage in stages if stage.bins]
    picked = np.unique(np.linspace(0, len(shown) - 1, _STAGES_SHOWN).round().astype(int))
    for number, index in enumerate(picked if shown else []):
        for style, (scope, bins) in zip(("-", "--", ":"), shown[index].bins.items(), strict=False):
            points = [((one.t_low + one.t_high) / 2, one.scale) for one in bins]
            label = f"step {shown[index].step}, {scope}"
            _series(axes, points, color=f"C{number}", label=label, style=style)


def _series(
    axes: Axes,
    points: list[tuple[float, NoiseScale]],
    *,
    color: str | tuple[float, float, float, float],
    label: str,
    style: str = "-",
) -> None:
    known = [(x, scale.b_simple) for x, scale in points if scale.b_simple]
    if not known:
        return
    # NaN breaks the line, so that it never crosses an undetermined scale.
    values = [scale.b_simple.value if scale.b_simple else np.nan for _, scale in points]
    x = [at for at, _ in points]
    axes.plot(x, values, style, marker="o", ms=3, lw=1, color=color, label=label)
    low, high = np.array([(b.low, b.high) for _, b in known], dtype=float).T
    axes.vlines([at for at, _ in known], low, high, lw=2, alpha=0.3, color=color)


def _finish(axes: Axes, xlabel: str) -> None:
    axes.set_yscale("log")
    plain_ticks(axes)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("B_simple, images")
    legend(axes, fontsize=6, ncols=2)


def _first_scope(stage: StageNoise) -> list[BinNoise]:
    return next(iter(stage.bins.values()), [])
