"""`profile`: where the time of a step goes, by operation and by part of the step."""

import argparse
from pathlib import Path

from analysis.measure.profile import (
    operation_rows,
    operations,
    read_trace,
    region_rows,
)
from analysis.table import put, put_more
from configs.errors import Unreadable

EXAMPLE = "ditbench profile logs/eager-1120 logs/compiled-1120"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the number of operations."""
    parser.add_argument(
        "--top", type=int, default=15, metavar="N", help="operations to print (default: 15)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the operations of one trace, or of two by their change; then the parts of the step."""
    if len(args.paths) > 2:
        raise Unreadable("profile takes one trace, or two to compare")
    traces = [read_trace(_trace(Path(path))) for path in args.paths]
    rows = operation_rows([operations(trace) for trace in traces], top=args.top)
    several = len(traces) > 1
    parts = [_of(n, row, several) for n, trace in enumerate(traces) for row in region_rows(trace)]
    put(rows, args, json={"operations": rows, "regions": parts})
    put_more(parts, args, title="parts of the steps:")
    return 0


def _of(number: int, row: dict[str, object], several: bool) -> dict[str, object]:
    return {"trace": "ab"[number]} | row if several else row


def _trace(path: Path) -> Path:
    """Return the file itself, or the first rank's trace in the newest profile of a folder."""
    if path.is_dir():
        patterns = ("*trace*.json", "*trace*.json.gz", "attempt-*/rank-*.json.gz")
        found = sorted(file for pattern in patterns for file in path.rglob(pattern))
        if not found:
            raise Unreadable(f"{path}: no trace in it (*trace*.json, attempt-*/rank-*.json.gz)")
        return min(file for file in found if file.parent == found[-1].parent)
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    return path
