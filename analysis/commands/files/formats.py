"""`runs --formats`: the formats of logs that are read, and how the logs under a path are."""

import argparse
from typing import Any

from analysis.measure.clocks import available_clocks
from analysis.read.find import read_all
from analysis.read.formats.lines import DIALECTS, FORMATS
from analysis.read.vocabulary import ALIASES
from analysis.table import put, remark

EXAMPLE = "ditbench runs --formats logs    (without a path: all formats and columns)"
FILES = (
    "ditbench", "TensorBoard", "ai-toolkit database", "sample names", "JSON lines", "JSON", "csv",
    "W&B", "wandb", "MLflow",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print a row per format and column, or how each run under the paths is read."""
    if not args.paths:
        put(_known(), args)
        return 0
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


def _known() -> list[dict[str, Any]]:
    rows = [{"name": name, "kind": "file"} for name in FILES]
    rows += [
        {"name": known.name, "kind": "text", "groups or names": ", ".join(known.pattern.groupindex)}
        for known in FORMATS
    ]
    rows += [
        {"name": known.name, "kind": "text", "groups or names": ", ".join(known.names)}
        for known in DIALECTS
    ]
    return rows + [
        {"name": column, "kind": "column", "groups or names": ", ".join(names)}
        for column, names in ALIASES.items()
    ]
