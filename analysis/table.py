"""Output of the commands: a table on stdout, remarks on stderr."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from configs.table import Row, csv_text, json_text, text_table
from configs.terminal import printable


def put(
    rows: Sequence[Row], args: argparse.Namespace, *, json: Any = None, drop: Sequence[str] = ()
) -> None:
    """Print rows as text, CSV or JSON; `json` replaces the rows in JSON output.

    Keep the rows in `args.rows` for the conditions of `--fail-if`. `drop` names the columns to
    leave out first of a table that is too wide.
    """
    args.rows = list(rows)
    if args.json:
        print(json_text(rows if json is None else json))
    else:
        print(csv_text(rows) if args.csv else text_table(rows, drop=drop, whole=args.all))


def put_more(rows: Sequence[Row], args: argparse.Namespace, *, title: str) -> None:
    """Print further rows below those of `put`, whose JSON has them already."""
    if rows and not args.json:
        head, text = ("", csv_text(rows)) if args.csv else (title, text_table(rows, whole=args.all))
        print("\n".join(["", *filter(None, [head]), text]))


def remark(lines: Iterable[str]) -> None:
    """Print remarks on stderr."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def percent_text(share: float | None) -> str | None:
    """Return a share as percent: `24.5%`."""
    return None if share is None else f"{share:.1%}"


def interval_text(low: float | None, high: float | None, form: str) -> str:
    """Return `[low, high]`, or an empty string if an end is unknown."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def with_intervals(row: Row) -> dict[str, Any]:
    """Return a row for people: a value and its interval `_low` to `_high` in one cell."""
    out = {name: value for name, value in row.items() if not name.endswith(("_low", "_high"))}
    for name, value in out.items():
        if ends := interval_text(row.get(f"{name}_low"), row.get(f"{name}_high"), ".3g"):
            out[name] = f"{value:.3g} {ends}"
    return out
