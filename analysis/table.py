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
# Sentences below a table; --json has all.
MOST_LINES = 8


def put(
    rows: Sequence[Row],
    args: argparse.Namespace,
    *,
    json: Any = None,
    drop: Sequence[str] = (),
    judged: str = "",
) -> None:
    """Print rows as text with their verdicts below, or as CSV or JSON; `json` replaces the rows.

    `drop` names the columns to leave out first of a table that is too wide. `judged` is as in
    `for_people`.
    """
    if args.json:
        print(json_text(rows if json is None else json))
    elif args.csv:
        print(csv_text(rows))
    else:
        shown = [for_people(row, judged=judged) for row in rows]
        print(text_table(shown, drop=drop, whole=args.all))
        if lines := [*verdict_lines(rows), *verdict_lines(rows, prefix="loss_")][:MOST_LINES]:
            print("\n" + "\n".join(lines))


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
        others = f" (+{len(names) - 1} alike)" if names[1:] else ""
        print(printable(text if text in names else f"{names[0]}{others}: {text}"), file=sys.stderr)


def interval_text(low: float | None, high: float | None, form: str) -> str:
    """Return `[low, high]`, or an empty string if an end is unknown."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def for_people(row: Row, *, judged: str = "") -> dict[str, Any]:
    """Return a row for people: a value with its interval in one cell, a judgement in two.

    The two are the ratio and the word; `judged` names them in a row with a second judgement, whose
    fields begin with `loss_`.
    """
    prefixes = [prefix for prefix in ("", "loss_") if f"{prefix}word" in row]
    of_judgement = {f"{prefix}{name}" for prefix in prefixes for name in FIELDS}
    out: dict[str, Any] = {}
    for name, after in zip(row, [*list(row)[1:], ""], strict=True):
        if name in of_judgement:
            if name.endswith("word"):
                prefix = name.removesuffix("word")
                ratio, low, high = (row[f"{prefix}{end}"] for end in ("ratio", "low", "high"))
                label = prefix or (f"{judged}_" if judged else "")
                out[f"{label}ratio"] = ratio_text(ratio, low, high) or None
                out[f"{label}verdict"] = row[name] or "baseline"
        elif name in ("low", "high") or _is_of_another(name, row):
            continue
        elif (name, row[name]) == ("counts", "step"):
            continue  # as people take for granted
        else:
            of = "" if after == "low" and after not in of_judgement else f"{name}_"
            ends = {
                end: f"{of}{end}" for end in ("low", "high") if f"{of}{end}" not in of_judgement
            }
            out[_LABELS.get(name, name)] = _cell(
                name, row, ends.get("low", ""), ends.get("high", "")
            )
    return out


def _is_of_another(name: str, row: Row) -> bool:
    """Whether a column is an end, or half the width, of another column's interval."""
    value, _, end = name.rpartition("_")
    return end in ("low", "high", "95") and value in row


def _cell(name: str, row: Row, low: str, high: str) -> Any:
    value, half = row[name], row.get(f"{name}_95")
    if value is not None and name in _PERCENT:
        return f"{value:.1%}"
    if value is not None and half is not None:
        return f"{value:.4g} ± {half:.2g}"
    ends = interval_text(row.get(low), row.get(high), ".4g")
    return f"{value:.4g} {ends}" if ends else value
