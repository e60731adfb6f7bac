"""The noise scale over training and over t, on linear and on logarithmic axes."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.gradient_noise.table import BinNoise, StageNoise
from analysis.plot import figure_of, plain, plain_ticks, save
from analysis.stats.noise_scale import NoiseScale

_STAGES_SHOWN = 4


def plot_noise(runs: list[tuple[str, list[StageNoise]]], path: Path) -> None:
    """Save `noise_figure` as PNG or SVG."""
    save(noise_figure(runs), path)


def noise_figure(runs: list[tuple[str, list[StageNoise]]]) -> Figure:
    """B_simple of runs with intervals, undetermined ones left out.

    Above over training, by bins too where one run is shown; below, where the first run has bins,
    over t at some of its stages.
    """
    has_bins = any(stage.bins for stage in runs[0][1])
    figure, panels = figure_of(rows=4 if has_bins else 2, height=12 if has_bins else 6)
    for axes, scale in zip(panels[:2], ("linear", "log"), strict=True):
        for number, (name, stages) in enumerate(runs):
            points = [(float(stage.step), stage.scale) for stage in stages]
            _series(axes, points, color="k" if len(runs) == 1 else f"C{number}", label=plain(name))
        if len(runs) == 1:
            _bins_over_training(axes, runs[0][1])
        _finish(axes, scale, "step")
    for axes, scale in zip(panels[2:], ("linear", "log"), strict=False):
        _bins_over_t(axes, runs[0][1])
        _finish(axes, scale, "t")
    return figure


def _bins_over_training(axes: Any, stages: list[StageNoise]) -> None:
    """A line per bin, from blue (little noise in the image) to yellow."""
    count = max((len(_first_scope(stage)) for stage in stages), default=0)
    for k in range(count):
        points = [
            (float(stage.step), _first_scope(stage)[k].scale)
            for stage in stages
            if len(_first_scope(stage)) == count
        ]
        label = f"t {k / count:.4g}-{(k + 1) / count:.4g}"
        _series(axes, points, color=_colour(k / max(1, count - 1)), label=label)


def _bins_over_t(axes: Any, stages: list[StageNoise]) -> None:
    """A line per stage and scope, the first one's solid."""
    shown = [stage for stage in stages if stage.bins]
    places = np.unique(np.linspace(0, len(shown) - 1, _STAGES_SHOWN).round().astype(int))
    for number, place in enumerate(places if shown else []):
        for style, (scope, bins) in zip(("-", "--", ":"), shown[place].bins.items(), strict=False):
            points = [((one.t_low + one.t_high) / 2, one.scale) for one in bins]
            label = f"step {shown[place].step}, {scope}"
            _series(axes, points, color=f"C{number}", label=label, style=style)


def _series(
    axes: Any, points: list[tuple[float, NoiseScale]], *, color: Any, label: str, style: str = "-"
) -> None:
    known = [(x, scale.b_simple) for x, scale in points if scale.b_simple]
    if not known:
        return
    # A gap where it is undetermined: no line may say what the data do not.
    values = [scale.b_simple.value if scale.b_simple else np.nan for _, scale in points]
    x = [at for at, _ in points]
    axes.plot(x, values, style, marker="o", ms=3, lw=1, color=color, label=label)
    low, high = [b.low for _, b in known], [b.high for _, b in known]
    axes.vlines([at for at, _ in known], low, high, lw=2, alpha=0.3, color=color)


def _finish(axes: Any, scale: str, of: str) -> None:
    axes.set_yscale(scale)
    if scale == "log":
        plain_ticks(axes)
    axes.set_xlabel(of)
    axes.set_ylabel("B_simple, images")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=6, ncols=2)


def _first_scope(stage: StageNoise) -> list[BinNoise]:
    return next(iter(stage.bins.values()), [])


def _colour(share: float) -> Any:
    import matplotlib as mpl

    return mpl.colormaps["viridis"](0.05 + 0.85 * share)
