"""Output: a text table for people, JSON and CSV for machines; remarks go to stderr."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from configs.terminal import printable

Row = Mapping[str, Any]


def text_table(rows: Sequence[Row]) -> str:
    """Return rows under headings with aligned columns, numbers to the right.

    A missing value is empty; a column that is empty in every row is left out.
    """
    heads = list(dict.fromkeys(name for row in rows for name in row if row[name] is not None))
    cells = [[printable(formatted(row.get(head))) for head in heads] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    right = [all(isinstance(row.get(head), int | float | None) for row in rows) for head in heads]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [heads, *cells]
    )


def csv_table(rows: Sequence[Row]) -> str:
    """Return rows as CSV; text that a spreadsheet would run as a formula gets a leading '."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(row.get(head)) for head in heads] for row in rows)
    return out.getvalue().rstrip("\n")


def json_text(value: Any) -> str:
    """Return JSON without missing values; ASCII, so that it cannot act on a terminal."""
    return json.dumps(_present(value), indent=1, allow_nan=False)


def put(rows: Sequence[Row], args: argparse.Namespace, *, json: Any = None) -> None:
    """Print rows as text, CSV or JSON; `json` replaces the rows in JSON output.

    Keep the rows in `args.rows` for the conditions of `--fail-if`.
    """
    args.rows = list(rows)
    if args.json:
        print(json_text(rows if json is None else json))
    else:
        print(csv_table(rows) if args.csv else text_table(rows))


def remark(lines: Iterable[str]) -> None:
    """Print remarks on stderr."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def _present(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _present(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_present(inner) for inner in value]
    return value


def formatted(value: Any) -> str:
    """Return a value as tables show it; a missing one is empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def percent_text(share: float | None) -> str | None:
    """Return a share as percent: `24.5%`."""
    return None if share is None else f"{share:.1%}"


def interval_text(low: float | None, high: float | None, form: str) -> str:
    """Return `[low, high]`, or an empty string if an end is unknown."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{printable(value)}"
    return printable(value) if isinstance(value, str) else value
