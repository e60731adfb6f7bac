"""Print rows as text for people, or as JSON or CSV for machines."""

import csv
import json
import sys
from collections.abc import Sequence
from typing import Literal

from configs.terminal import printable

Cell = str | int | float | None
Row = dict[str, Cell]
Form = Literal["text", "json", "csv"]


def show(rows: Sequence[Row], form: Form) -> None:
    """Print the rows; missing values are omitted in JSON and empty elsewhere."""
    if form == "json":
        print(json.dumps([_without_missing(row) for row in rows], indent=1))
    elif form == "csv" and rows:
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif rows:
        print(text(rows))


def text(rows: Sequence[Row]) -> str:
    """Return the rows as aligned columns under their headings."""
    heads = list(rows[0])
    lines = [heads, *([_cell_text(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _without_missing(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _cell_text(value: Cell) -> str:
    """Return a value as text without control characters, which a folder's name may contain."""
    shown = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
    return printable(shown)
