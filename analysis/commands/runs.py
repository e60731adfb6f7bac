"""`runs`: one row per run."""

import argparse

from analysis.detect.detectors import detect, finding_row
from analysis.measure.overview import overview
from analysis.read.find import ReadLogs, read_all
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
    """Print the table; return 1 if a run could not be read."""
    if args.detect:
        return _detect(read_all(args.paths), args)
    entries = overview(args.paths)
    put([entry["row"] for entry in entries], args)
    remark(line for entry in entries for line in entry["remarks"])
    return 1 if any(entry["row"].get("state") == "unreadable" for entry in entries) else 0


def _detect(found: ReadLogs, args: argparse.Namespace) -> int:
    rows = [finding_row(log, one) for log in found.logs for one in detect(log)]
    put(rows, args)
    remark(why for _, why in found.unread)
    return 1 if rows or found.unread else 0
