"""`noise`: the gradient noise scale of runs, over training and by bins of t."""

import argparse

from analysis.measure.gradient_noise import UNDETERMINED, by_step, noise_rows
from analysis.read.find import places
from analysis.table import put, remark
from configs.errors import Unreadable

# The columns to leave out first of a table that is too wide.
DROP = ("seconds", "g2", "s")
EXAMPLE = "ditbench noise logs/digits-1120"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the number of stages and the form."""
    parser.add_argument(
        "--stages", type=_positive, default=10, help="most stages of training (default: 10)"
    )
    parser.add_argument(
        "--by-step", action="store_true", help="print one column of B_simple per step"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def run(args: argparse.Namespace) -> int:
    """Print the scales; return 1 if none is determined."""
    runs = [run for place in places(args.paths) for run in place.ours]
    if not runs:
        raise Unreadable(f"{args.paths[0]}: no run in it")
    found = [noise_rows(run, stages=args.stages) for run in runs]
    table = [row for rows in found for row in rows]
    put(by_step(table) if args.by_step else table, args, json=table, drop=DROP)
    for rows in found:
        verdicts = [row["verdict"] for row in rows if row["t"] == "all"]
        if undetermined := verdicts.count(UNDETERMINED):
            remark(
                [
                    f"{rows[0]['run']}: undetermined in {undetermined} of {len(verdicts)} stages: "
                    "the interval of |G|^2 or of tr Sigma contains zero, or there are too few "
                    "samples"
                ]
            )
    return 0 if any(row["verdict"] != UNDETERMINED for row in table) else 1
