"""`profile`: where the time of a step goes, by operation and by part of the step."""

import argparse
from pathlib import Path

from analysis.table import csv_table, put, text_table

DOC = "the longest operations of a PyTorch trace by self time; two traces side by side"
EXAMPLE = "python -m analysis profile logs/eager-1120 logs/compiled-1120"


def options(sub: argparse.ArgumentParser) -> None:
    """How many operations."""
    sub.add_argument("--top", type=int, default=15, metavar="N", help="so many (default: 15)")


def act(asked: argparse.Namespace) -> int:
    """Print the operations of one trace, or of two by what changed; then the parts of the step."""
    from analysis.measure.profile import (
        operation_rows,
        operations,
        read_trace,
        region_rows,
        waiting_rows,
    )
    from configs.errors import Unreadable

    if len(asked.paths) > 2:
        raise Unreadable("profile takes one trace, or two to compare")
    traces = [read_trace(_trace(Path(path))) for path in asked.paths]
    rows = operation_rows([operations(trace) for trace in traces], top=asked.top)
    several = len(traces) > 1
    parts = [_of(n, row, several) for n, trace in enumerate(traces) for row in region_rows(trace)]
    waits = [_of(n, row, several) for n, trace in enumerate(traces) for row in waiting_rows(trace)]
    put(rows, asked, json={"operations": rows, "regions": parts, "waiting": waits})
    for title, table in (("parts of the steps", parts), ("calls that wait for a GPU", waits)):
        if table and not asked.json:
            print(f"\n{csv_table(table)}" if asked.csv else f"\n{title}:\n{text_table(table)}")
    return 0


def _of(number: int, row: dict[str, object], several: bool) -> dict[str, object]:
    return {"trace": "ab"[number]} | row if several else row


def _trace(path: Path) -> Path:
    """The trace named, or the first rank's in the newest of a folder's profiles."""
    from configs.errors import Unreadable

    if path.is_dir():
        patterns = ("*trace*.json", "*trace*.json.gz", "attempt-*/rank-*.json.gz")
        found = sorted(file for pattern in patterns for file in path.rglob(pattern))
        if not found:
            raise Unreadable(f"{path}: no trace in it (*trace*.json, attempt-*/rank-*.json.gz)")
        return min(file for file in found if file.parent == found[-1].parent)
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    return path
