"""Output of the commands: a table on stdout, remarks on stderr, conditions as exit codes."""

import argparse
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.errors import Unreadable
from configs.table import Row, csv_text, json_text, text_table
from configs.terminal import printable

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"\s*([\w ./%-]+?)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*")


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


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A column, an operator and a value: a number, or text for == and !=."""

    text: str
    column: str
    operator: str
    value: float | str

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        """Return whether it holds for a row, or None if the row has no such value."""
        found = row.get(self.column)
        if found is None:
            return None
        if isinstance(found, str) != isinstance(self.value, str):
            raise Unreadable(f"--fail-if {self.text}: {self.column} is {found!r}")
        return _OPERATORS[self.operator](found, self.value)


def parse_condition(text: str) -> Condition:
    """Parse `ratio<0.97` or `word==different`; raise `Unreadable` for anything else."""
    match = _FORM.fullmatch(text)
    if not match:
        raise Unreadable(f"--fail-if {text!r}: expected COLUMN<VALUE, such as ratio<0.97")
    try:
        value: float | str = float(match[3])
    except ValueError:
        value = match[3].strip("\"'")
    if isinstance(value, str) and match[2] not in ("==", "!="):
        raise Unreadable(f"--fail-if {text!r}: {match[3]!r} is not a number")
    return Condition(text=text, column=match[1], operator=match[2], value=value)


def failing(
    rows: Sequence[Mapping[str, Any]], conditions: Sequence[Condition]
) -> tuple[bool, list[str]]:
    """Return whether any condition holds, and a remark on each that does or is undecided."""
    failed, remarks = False, []
    for condition in conditions:
        known = {name for row in rows for name in row}
        if rows and condition.column not in known:
            columns = ", ".join(sorted(known))
            raise Unreadable(f"--fail-if {condition.text}: no such column; there are {columns}")
        results = [condition.holds(row) for row in rows]
        if any(results):
            failed = True
            remarks.append(f"failed: {condition.text}")
        elif not any(held is not None for held in results):
            remarks.append(f"not decided: {condition.text} (no row has a {condition.column})")
    return failed, remarks
