"""`runs`: one row per run."""

import argparse

from analysis.detect.detectors import detect, finding_row
from analysis.measure.overview import run_row
from analysis.read.find import read_all
from analysis.table import put, remark

EXAMPLE = "ditbench runs logs"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the detectors."""
    parser.add_argument(
        "--detect",
        action="store_true",
        help="instead, one row per stall, spike, divergence, NaN and rate drop; exit 1 if there is "
        "one",
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; return 1 if a run could not be read, or `--detect` finds a fault."""
    found = read_all(args.paths)
    if args.detect:
        rows = [finding_row(log, one) for log in found.logs for one in detect(log)]
    else:
        rows = [run_row(log) for log in found.logs]
        rows += [{"run": name, "state": "unreadable"} for name, _ in found.unread]
        remark(line for log in found.logs for line in log.remarks)
    put(rows, args)
    remark(why for _, why in found.unread)
    return 1 if found.unread or (args.detect and rows) else 0
