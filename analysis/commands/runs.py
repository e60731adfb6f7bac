"""`runs`: one row per run."""

import argparse
from typing import Any

from analysis.measure.clocks import available_clocks
from analysis.measure.detectors import detect
from analysis.measure.overview import run_row
from analysis.read.find import read_all
from analysis.read.run_log import RunLog
from analysis.table import put, remark

EXAMPLE = "ditbench runs logs"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the detectors and the formats."""
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--detect",
        action="store_true",
        help="instead, one row per stall, spike, divergence, NaN and rate drop; exit 1 if there is "
        "one",
    )
    instead.add_argument(
        "--formats", action="store_true", help="instead, how the log of each run is read"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; return 1 if a run could not be read, or `--detect` finds a fault."""
    found = read_all(args.paths)
    if args.detect:
        rows = [row for log in found.logs for row in detect(log)]
    elif args.formats:
        rows = [_format_row(log) for log in found.logs]
    else:
        rows = [run_row(log) for log in found.logs]
        rows += [{"run": name, "state": "unreadable"} for name, _ in found.unread]
    put(rows, args)
    if not args.detect:
        remark(line for log in found.logs for line in log.remarks)
    remark(why for _, why in found.unread)
    return 1 if found.unread or (args.detect and rows) else 0


def _format_row(log: RunLog) -> dict[str, Any]:
    read = log.lines_read
    return {
        "run": log.name,
        "format": log.format,
        "axis": log.axis,
        "clocks": ", ".join(available_clocks(log)),
        "columns": ", ".join(log.values),
        "lines read": f"{read[0]} of {read[1]}" if read else None,
    }
