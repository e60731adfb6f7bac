"""Plots by matplotlib; the same input gives the same bytes."""

from pathlib import Path

import matplotlib

from analysis.loss import AXES, Curve

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.hashsalt": "ditbench", "svg.fonttype": "none"})


def plot_losses(curves: list[Curve], path: Path, *, by: str) -> None:
    """Loss curves over one axis and, below, their ratio to the first one's; PNG or SVG."""
    import numpy as np
    from matplotlib import pyplot as plt

    figure, (top, below) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 6), height_ratios=[3, 1], layout="constrained"
    )
    first = curves[0]
    for number, curve in enumerate(curves):
        name = plain(curve.log.name)
        top.plot(curve.x, curve.loss, lw=1.2, color=f"C{number % 10}", label=name, alpha=0.85)
        inside = (curve.x >= first.x[0]) & (curve.x <= first.x[-1])
        if number and inside.any():
            x = curve.x[inside]
            ratio = curve.loss[inside] / np.interp(x, first.x, first.loss)
            below.plot(x, ratio, lw=1.2, color=f"C{number % 10}")
    if all((curve.loss > 0).all() for curve in curves):
        top.set_yscale("log")
    top.set_ylabel("loss")
    top.legend(frameon=False)
    below.axhline(1, color="C0", lw=0.8)
    below.set_ylabel("ratio to first")
    below.set_xlabel(AXES[by])
    for axes in (top, below):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=150, metadata=metadata)
    plt.close(figure)


def plain(text: str) -> str:
    """Text without matplotlib's mathematics, and without its sign for hidden legend entries."""
    shown = "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
