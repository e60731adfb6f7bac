"""Output of the commands: a table on stdout, remarks on stderr."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from analysis.verdict import FIELDS, ratio_text, verdict_lines
from configs.table import Row, csv_text, json_text, text_table
from configs.terminal import printable

# Shares that people read as percent, and names that they know better.
_PERCENT = ("mfu", "useful", "energy_share")
_LABELS = {"mfu": "MFU"}
# Sentences below a table without --all.
MOST_LINES = 8


def put(
    rows: Sequence[Row],
    args: argparse.Namespace,
    *,
    json: Any = None,
    drop: Sequence[str] = (),
) -> None:
    """Print rows as text with their verdicts below, or as CSV or JSON; `json` replaces the rows.

    `drop` names the columns to leave out first of a table that is too wide.
    """
    if args.json:
        print(json_text(rows if json is None else json))
    elif args.csv:
        print(csv_text(rows))
    else:
        shown = [for_people(row) for row in rows]
        print(text_table(shown, drop=drop, whole=args.all))
        if lines := [*verdict_lines(rows), *verdict_lines(rows, prefix="loss_")]:
            shown_lines = lines if args.all else lines[:MOST_LINES]
            left = len(lines) - len(shown_lines)
            more = [f"{left} more sentences (--all shows them)"] if left else []
            print("\n" + "\n".join([*shown_lines, *more]))


def put_more(rows: Sequence[Row], args: argparse.Namespace, *, title: str) -> None:
    """Print further rows below the table of `put`, whose JSON has them already."""
    if rows and not args.json:
        shown = [for_people(row) for row in rows]
        text = csv_text(rows) if args.csv else f"{title}\n{text_table(shown, whole=args.all)}"
        print(f"\n{text}")


def remark(lines: Iterable[str]) -> None:
    """Print remarks `NAME: TEXT` on stderr; remarks of the same text share a line."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        name, _, text = line.partition(": ")
        alike.setdefault(text or line, []).append(name)
    for text, names in alike.items():
        others = f" and {len(names) - 1} more" if names[1:] else ""
        print(printable(text if text in names else f"{names[0]}{others}: {text}"), file=sys.stderr)


def for_people(row: Row) -> dict[str, Any]:
    """Return a row for people: a value with its interval in one cell, a judgement in two.

    The two are the ratio and the word. A row with a second judgement, whose fields begin with
    `loss_`, has the first one on the speed.
    """
    labels = {"": "speed_", "loss_": "loss_"} if "loss_word" in row else {"": ""}
    judged = {f"{prefix}{name}" for prefix in labels if f"{prefix}word" in row for name in FIELDS}
    own = {name: value for name, value in row.items() if name not in judged}
    out: dict[str, Any] = {}
    for name, value in row.items():
        value_name, _, end = name.rpartition("_")
        if name in judged:
            if name.endswith("word"):
                prefix = name.removesuffix("word")
                ends = (row[f"{prefix}{field}"] for field in ("ratio", "low", "high"))
                out[f"{labels[prefix]}ratio"] = ratio_text(*ends) or None
                out[f"{labels[prefix]}verdict"] = value or "baseline"
        elif end in ("low", "high") and value_name in own:
            continue
        elif (name, value) != ("counts", "step"):  # as people take for granted
            out[_LABELS.get(name, name)] = _cell(name, own)
    return out


def _cell(name: str, row: Row) -> Any:
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is not None and name in _PERCENT:
        return f"{value:.1%}"
    return value if None in (low, high) else f"{value:.4g} [{low:.4g}, {high:.4g}]"
