"""`profile`: where the time of a step goes, by operation."""

import argparse
from pathlib import Path

from analysis.table import put

DOC = "the longest operations of a PyTorch trace by self time; two traces side by side"
EXAMPLE = "python -m analysis profile logs/eager-1120/profile logs/compiled-1120/profile"


def options(sub: argparse.ArgumentParser) -> None:
    """How many operations."""
    sub.add_argument("--top", type=int, default=15, metavar="N", help="so many (default: 15)")


def act(asked: argparse.Namespace) -> int:
    """Print the operations of one trace, or of two by what changed."""
    from analysis.profile import operations, profile_rows, read_trace
    from analysis.read import Unreadable

    if len(asked.paths) > 2:
        raise Unreadable("profile takes one trace, or two to compare")
    traces = [operations(read_trace(_trace(Path(path)))) for path in asked.paths]
    rows = profile_rows(traces, top=asked.top)
    put(rows, asked, json={"operations": rows})
    return 0


def _trace(path: Path) -> Path:
    """The trace named, or the newest by name in a folder."""
    from analysis.read import Unreadable

    if path.is_dir():
        found = [*path.rglob("*trace*.json"), *path.rglob("*trace*.json.gz")]
        if not found:
            raise Unreadable(f"{path}: no trace (*trace*.json, *trace*.json.gz) in it")
        return max(found)
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    return path
