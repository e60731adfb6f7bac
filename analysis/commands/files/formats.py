"""`runs --formats`: how the logs under a path are read."""

import argparse

from analysis.measure.clocks import available_clocks
from analysis.read.find import read_all
from analysis.table import put, remark

EXAMPLE = "ditbench runs --formats logs"


def run(args: argparse.Namespace) -> int:
    """Print how each run under the paths is read."""
    found = read_all(args.paths)
    put(
        [
            {
                "run": log.name,
                "format": log.format,
                "axis": log.axis,
                "clocks": ", ".join(available_clocks(log)),
                "columns": ", ".join(log.values),
                "lines read": f"{log.lines_read[0]} of {log.lines_read[1]}"
                if log.lines_read
                else None,
            }
            for log in found.logs
        ],
        args,
    )
    remark(line for log in found.logs for line in log.remarks)
    remark(why for _, why in found.unread)
    return 1 if found.unread else 0
