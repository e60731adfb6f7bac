"""`formats`: the formats of logs that are read, and the names of their columns."""

import argparse

from analysis.read.columns import ALIASES
from analysis.read.formats.text import FORMATS
from analysis.table import put

EXAMPLE = "python -m analysis formats"
STRUCTURED = (
    "ditbench", "TensorBoard", "ai-toolkit database", "sample names", "JSON lines", "JSON", "csv",
    "W&B",
)  # fmt: skip


def options(sub: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(args: argparse.Namespace) -> int:
    """Print a row for each text format with its groups, and for each column with its names."""
    rows = [{"format": name, "kind": "file"} for name in STRUCTURED]
    rows += [
        {"format": known.name, "kind": "text", "names": ", ".join(known.pattern.groupindex)}
        for known in FORMATS
    ]
    rows += [
        {"format": column, "kind": "column", "names": ", ".join(names)}
        for column, names in ALIASES.items()
    ]
    put(rows, args)
    return 0
