"""`cells --fid`: the quality of samples, by arms."""

import argparse

from analysis.commands import share
from analysis.measure.quality import GUIDANCE, MARGIN, qualities, quality_row
from analysis.read.find import read_logs
from analysis.table import put, remark, with_intervals
from configs.errors import Unreadable

EXAMPLE = "ditbench cells logs/layouts-1120 --fid"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the margin of equivalent distances."""
    parser.add_argument(
        "--margin", type=share, default=MARGIN, help="for equivalent (default: 0.02)"
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per arm, the first being the baseline."""
    arms = qualities(read_logs(args.paths))
    if not arms:
        raise Unreadable("no run records a FID without its bias: evaluate.fid, or `train fid`")
    rows = [quality_row(arms[0], arm, margin=args.margin) for arm in arms]
    put(rows if args.json or args.csv else [with_intervals(row) for row in rows], args, json=rows)
    args.rows = rows
    remark([GUIDANCE])
    return 0
