"""`loss`: loss curves against the first run's: the same, different or undetermined."""

import argparse

from analysis.commands import add_margin, plot_file, writing
from analysis.measure.loss import Compared, loss_rows
from analysis.measure.loss_curve import AXES, NO_TRAINING, axis_of, loss_curve
from analysis.measure.two_curves import exact_differences
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.table import put, remark
from analysis.verdict import FIELDS
from configs.errors import Unreadable

EXAMPLE = "ditbench loss logs/one-rank logs/two-ranks --by train_s --plot loss.png"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the axis, the margin, exactness and the plot."""
    parser.add_argument(
        "--by", choices=AXES, help="align on this (default: images if all record them, else steps)"
    )
    parser.add_argument(
        "--of",
        default="loss",
        metavar="NAME",
        help="compare this evaluation, such as validation_loss, instead of the training loss",
    )
    add_margin(parser)
    parser.add_argument(
        "--exact", action="store_true", help="exit 1 if any loss at a common step differs"
    )
    parser.add_argument(
        "--plot", type=plot_file, metavar="FILE", help="also draw the curves: .png, .svg or .pdf"
    )


def run(args: argparse.Namespace) -> int:
    """Print the comparison; return 1 if `--exact` finds a difference."""
    found = read_logs(args.paths)
    logs = [log for log in found if (log.config or {}).get("kind") not in NO_TRAINING]
    remark(f"{log.name}: left out, it trains nothing" for log in found if log not in logs)
    if len(logs) < 2:
        raise Unreadable(f"{args.paths[0]}: one run; loss compares at least two")
    args.by = args.by or axis_of(logs)
    if args.plot:
        _draw(logs, args)
    code = _compare(logs, args)
    remark(line for log in logs for line in log.remarks)
    return code


def _compare(logs: list[RunLog], args: argparse.Namespace) -> int:
    errors = []
    for log in logs:
        try:
            loss_curve(log, by=args.by, of=args.of)
        except Unreadable as error:
            errors.append(error)
    if len(errors) == len(logs):
        raise errors[0]  # says what there is instead
    rows = loss_rows(logs, Compared(of=args.of, by=args.by, margin=args.margin))
    if not args.exact:
        put(rows, args, json={"pairs": rows})
        return 0
    pairs = zip(rows, logs[1:], strict=True)
    rows = [row | exact_differences(logs[0], other, of=args.of) for row, other in pairs]
    # The judgement allows for a margin, which is not what was asked.
    shown = [{name: row[name] for name in row if name not in FIELDS} for row in rows]
    put(rows if args.csv else shown, args, json={"pairs": rows})
    return 1 if any(row["differing"] for row in rows) else 0


def _draw(logs: list[RunLog], args: argparse.Namespace) -> None:
    # matplotlib takes half a second to import.
    from analysis.measure.loss_plot import plot_losses

    curves = [loss_curve(log, by=args.by, of=args.of) for log in logs]
    with writing(args.plot):
        plot_losses(curves, args.plot, by=args.by)
