"""`loss`: loss curves against the first run's: the same, different, or not to be told."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.table import put, remark

if TYPE_CHECKING:
    from analysis.read.run_log import RunLog

DOC = "loss of each run against the first: same within a margin, different, or undetermined"
EXAMPLE = "python -m analysis loss logs/one-rank logs/two-ranks --by train_s --plot loss.png"
BY = ("step", "images", "train_s", "wall", "gpu_hours")


def options(sub: argparse.ArgumentParser) -> None:
    """The axis, the margin, exactness and the plot."""
    sub.add_argument("--by", choices=BY, default="step", help="align on this (default: step)")
    sub.add_argument(
        "--of",
        default="loss",
        metavar="NAME",
        help="compare this evaluation, such as validation_loss, instead of the training loss",
    )
    sub.add_argument(
        "--after", type=float, default=0.0, metavar="X", help="compare from this point of it on"
    )
    sub.add_argument(
        "--margin",
        type=_share,
        default=0.01,
        help="what counts as the same, as a share of the first run's mean loss (default: 0.01)",
    )
    sub.add_argument(
        "--exact", action="store_true", help="exit 1 where any loss at a common step differs"
    )
    sub.add_argument(
        "--plot", type=_image, metavar="FILE", help="also draw the curves: .png or .svg"
    )


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; 0.01 means 1 %")
    return share


def _image(text: str) -> Path:
    if Path(text).suffix not in (".png", ".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} ends neither in .png nor in .svg")
    return Path(text)


def act(asked: argparse.Namespace) -> int:
    """Print the comparison; 1 where `--exact` finds a difference."""
    from analysis.read.find import read_logs
    from configs.errors import Unreadable

    logs = read_logs(asked.paths)
    if len(logs) < 2:
        raise Unreadable(f"{asked.paths[0]}: one run; loss compares at least two")
    if asked.plot:
        _draw(logs, asked)
    code = _exact(logs, asked) if asked.exact else _compare(logs, asked)
    remark(line for log in logs for line in log.remarks)
    return code


def _compare(logs: "list[RunLog]", asked: argparse.Namespace) -> int:
    from analysis.measure.loss import AXES, factor_remark, pair_curves, pair_row, whole_factor

    pairs = [
        pair_curves(logs[0], other, by=asked.by, after=asked.after, of=asked.of)
        for other in logs[1:]
    ]
    rows = [pair_row(found, margin=asked.margin) for found in pairs]
    put(rows, asked, json={"pairs": rows})
    for found in pairs:
        low, high = found.x[0], found.x[-1]
        remark([f"{found.b.name}: {len(found.x)} points, {AXES[asked.by]} {low:.6g} to {high:.6g}"])
        factor = whole_factor(found)
        if factor is not None:
            remark([factor_remark(found, factor)])
    return 0


def _exact(logs: "list[RunLog]", asked: argparse.Namespace) -> int:
    from analysis.measure.loss import exact_differences, pair_curves, pair_row

    rows = [
        pair_row(pair_curves(logs[0], other, of=asked.of), margin=asked.margin)
        | exact_differences(logs[0], other, of=asked.of)
        for other in logs[1:]
    ]
    put(rows, asked, json={"pairs": rows})
    return 1 if any(row["differing"] for row in rows) else 0


def _draw(logs: "list[RunLog]", asked: argparse.Namespace) -> None:
    from analysis.measure.loss import loss_curve
    from analysis.measure.loss_plot import plot_losses
    from configs.errors import Unreadable

    try:
        plot_losses(
            [loss_curve(log, by=asked.by, of=asked.of) for log in logs], asked.plot, by=asked.by
        )
    except OSError as error:
        raise Unreadable(f"{asked.plot}: cannot be written: {error.strerror}") from None
