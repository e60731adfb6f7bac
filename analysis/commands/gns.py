"""`gns`: the gradient noise scale of runs, over training and by bins of t."""

import argparse
from pathlib import Path

from analysis.table import put, remark

DOC = "gradient noise scale over training and by bins of t, with intervals and what it could save"
EXAMPLE = "python -m analysis gns logs/digits-1120 --plot noise.png"


def options(sub: argparse.ArgumentParser) -> None:
    """How finely training is told apart, and the plot."""
    sub.add_argument(
        "--stages",
        type=_positive,
        default=10,
        help="stretches of training that are told apart, at most (default: 10)",
    )
    sub.add_argument("--by-step", action="store_true", help="a column per step, of B_simple alone")
    sub.add_argument("--scope", metavar="NAME", help="only this scope: whole, adaln, ...")
    sub.add_argument(
        "--plot", type=_image, metavar="FILE", help="also draw the scales: .png or .svg"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _image(text: str) -> Path:
    if Path(text).suffix not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} ends neither in .png nor in .svg")
    return Path(text)


def act(asked: argparse.Namespace) -> int:
    """Print the scales; 1 where none of them is determined."""
    from analysis.gradient_noise.stages import read_noise
    from analysis.gradient_noise.table import (
        by_step,
        noise_by_stage,
        noise_remarks,
        noise_rows,
        run_dict,
    )
    from analysis.read.find import places
    from analysis.stats.noise_scale import DETERMINED
    from configs.errors import Unreadable

    runs = [run for place in places(asked.paths) for run in place.ours]
    if not runs:
        raise Unreadable(f"{asked.paths[0]}: no run in it")
    logs = [read_noise(run, stages=asked.stages) for run in runs]
    found = [(log, noise_by_stage(log)) for log in logs]
    trees = [run_dict(log, stages) for log, stages in found]
    table = [row for log, stages in found for row in noise_rows(log, stages)]
    if asked.scope:
        table = [row for row in table if row["scope"] == asked.scope]
    put(
        by_step(table) if asked.by_step else table,
        asked,
        json=trees[0] if len(trees) == 1 else trees,
    )
    for log, stages in found:
        remark(noise_remarks(log, stages))
    if asked.plot:
        from analysis.gradient_noise.plot import plot_noise

        try:
            plot_noise([(log.name, stages) for log, stages in found], asked.plot)
        except OSError as error:
            raise Unreadable(f"{asked.plot}: cannot be written: {error.strerror}") from None
    return 0 if any(row["verdict"] == DETERMINED for row in table) else 1
