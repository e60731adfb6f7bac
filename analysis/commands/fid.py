"""`cells --fid`: the quality of samples, by arms."""

import argparse

from analysis.commands import add_margin
from analysis.measure.quality import GUIDANCE, MARGIN, quality_rows
from analysis.read.find import read_logs
from analysis.table import put, remark
from configs.errors import Unreadable

EXAMPLE = "ditbench cells logs/layouts-1120 --fid"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the margin of equivalent distances."""
    add_margin(parser, MARGIN)


def run(args: argparse.Namespace) -> int:
    """Print a row per arm, the first being the baseline."""
    rows = quality_rows(read_logs(args.paths), margin=args.margin)
    if not rows:
        raise Unreadable("no run records a FID without its bias: evaluate.fid, or `train fid`")
    put(rows, args, json=rows)
    remark([GUIDANCE])
    return 0
