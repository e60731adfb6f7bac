"""Tables: text as wide as the terminal for people, JSON and CSV for machines.

A number is never cut. A column with one value in all rows becomes a line above the table; columns
that do not fit are left out, and a line below names them; then names are cut in the middle, and
sentences wrap.
"""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal

from configs.terminal import csv_cell, printable

Row = Mapping[str, Any]

# The columns of a table in a pipe or a file.
WIDTH = 100
# Names of more characters may be cut, down to these, and sentences wrap.
SHORTEST = 16
GAP = 2
# Of a name that is cut, the share of its end, in the order of preference.
SHARES = (0.5, 0.7, 0.85, 0.3)
# Columns that are never left out, and keep their place if all rows are alike.
RESULTS = r"^(state|speedup|ratio|speed_ratio|b_simple)$|verdict$"
NUMBERS = r"[-+\d.,:/%x\[\] einfa]*"
STYLES = {
    "failed": "bold red", "fail": "bold red", "lost": "red", "cancelled": "red", "timeout": "red",
    "running": "green", "pass": "green", "done": "green", "warn": "yellow", "stopped": "yellow",
    "slower": "red", "different": "red", "disagrees": "bold red", "faster": "green",
}  # fmt: skip


def text_table(rows: Sequence[Row], *, drop: Sequence[str] = (), whole: bool = False) -> str:
    """Return rows under headings; a missing value is empty, a column without values is left out.

    `drop` names the columns to leave out first if the table is too wide; then the last one goes.
    `whole` leaves every column, however wide.
    """
    rows = [{printable(name): value for name, value in row.items()} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    heads = [name for name in names if any(formatted(row.get(name)) for row in rows)]
    cells = {head: [printable(formatted(row.get(head))) for row in rows] for head in heads}
    constant = {} if whole else _constant(rows, cells)
    shown = {head: column for head, column in cells.items() if head not in constant}
    widths, left_out = _fit(shown, drop, sys.maxsize if whole else output_width())
    numbers = {head for head in widths if all(is_number(row.get(head)) for row in rows)}
    parts = [_rendered({head: (shown[head], width) for head, width in widths.items()}, numbers)]
    if constant:
        same = "; ".join(f"{heading(head)} {value}" for head, value in constant.items())
        parts.insert(0, f"all rows: {same}")
    if left_out:
        parts.append(f"left out: {', '.join(map(heading, left_out))} (--all shows them)")
    return "\n".join(parts)


def output_width() -> int:
    """Return the columns of the terminal; in a pipe or a file at most `WIDTH`."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size((WIDTH, 24)).columns
    # Output that a program keeps, such as a page, does not depend on the terminal.
    if sys.stdout is sys.__stdout__:
        with contextlib.suppress(OSError):
            return min(WIDTH, os.get_terminal_size(2).columns or WIDTH)
    return WIDTH


def _constant(rows: Sequence[Row], cells: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the columns of one value in all of several rows, but for results."""
    found = {
        head: column[0]
        for head, column in cells.items()
        if len(rows) > 1 and len({row.get(head) for row in rows}) == 1
        if not re.search(RESULTS, head)
    }
    return found if len(found) < len(cells) else {}


def _fit(
    cells: Mapping[str, list[str]], drop: Sequence[str], width: int
) -> tuple[dict[str, int], list[str]]:
    """Return the widths of the columns that fit, and the columns that are left out."""
    least = {head: _least(head, column) for head, column in cells.items()}
    natural = {head: max(width, *map(len, cells[head])) for head, width in least.items()}
    kept, left_out = list(cells), list[str]()
    free = width + GAP - sum(least.values()) - GAP * len(kept)
    while free < 0 and len(kept) > 1:
        others = [head for head in kept if not re.search(RESULTS, head)]
        if len(others) < 2:
            break
        left_out.append(next((head for head in drop if head in others), others[-1]))
        kept.remove(left_out[-1])
        free += least[left_out[-1]] + GAP
    for head in left_out[::-1]:
        # A narrow column may fit beside those that were dropped after it.
        if least[head] + GAP <= free:
            left_out.remove(head)
            free -= least[head] + GAP
    widths = {head: least[head] for head in cells if head not in left_out}
    growing = sorted(widths, key=lambda head: natural[head] - widths[head])
    for number, head in enumerate(growing):
        more = max(0, min(natural[head] - widths[head], free // (len(growing) - number)))
        widths[head] += more
        free -= more
    for head in widths:
        # The room that is left keeps headings on one line.
        more = max(0, min(len(heading(head)) - widths[head], free))
        widths[head] += more
        free -= more
    return widths, left_out


def _least(head: str, column: Sequence[str]) -> int:
    """Return the least width of a column: numbers stay whole, and cut names differ."""
    longest, pieces = max(map(len, column)), max(map(len, _broken(head).split()), default=0)
    if longest <= SHORTEST or all(re.fullmatch(NUMBERS, cell) for cell in column):
        return max(pieces, longest)
    if _is_prose(column):
        words = max(len(word) for cell in column for word in cell.split())
        return max(pieces, 14, min(words, 2 * SHORTEST))
    count, widths = len({*column}), range(SHORTEST, longest + 1)
    return max(pieces, next(n for n in widths if len({*_cut(column, n)}) == count))


def _is_prose(column: Sequence[str]) -> bool:
    return any(" " in cell for cell in column)


def _cut(names: Sequence[str], width: int) -> list[str]:
    """Return names with their middle left out, at a place where they differ as before."""
    found: list[str] = []
    for share in SHARES:
        end = int((width - 3) * share)
        found = [s if len(s) <= width else f"{s[: width - 3 - end]}...{s[-end:]}" for s in names]
        if len({*found}) == len({*names}):
            break
    return found


def heading(name: str) -> str:
    """Return a column's name in words: `images_per_s` becomes images/s; a key stays as typed."""
    return name if "." in name else name.replace("_per_", "/").replace("_", " ")


def _broken(head: str) -> str:
    """Return a heading with a space wherever a line may end."""
    return re.sub(r"(?<=[._])(?=.)", " ", heading(head)) if "." in head else heading(head)


def _rendered(columns: Mapping[str, tuple[Sequence[str], int]], numbers: Container[str]) -> str:
    # Imported here, so that JSON and --help need not wait for it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for head, (_, width) in columns.items():
        lines = (
            textwrap.wrap(_broken(head), width) if len(heading(head)) > width else [heading(head)]
        )
        title = Text("\n".join(re.sub(r"(?<=[._]) ", "", line) for line in lines))
        justify: Literal["left", "right"] = "right" if head in numbers else "left"
        table.add_column(title, width=width, justify=justify, overflow="fold")
    cut = [
        column if _is_prose(column) else _cut(column, width) for column, width in columns.values()
    ]
    for row in zip(*cut, strict=True):
        table.add_row(*(Text(cell, style=STYLES.get(cell.split(" ")[0], "")) for cell in row))
    out = io.StringIO()
    Console(
        file=out,
        width=sum(width + GAP for _, width in columns.values()) or 1,
        force_terminal=is_coloured,
        color_system="standard" if is_coloured else None,
    ).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def is_number(value: Any) -> bool:
    """Return whether a cell is a number or missing, as in a column that is set to the right."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def formatted(value: Any) -> str:
    """Return a value as tables show it; a missing one is empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV that a spreadsheet may open: none of its cells is run as a formula."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, heads))
    writer.writerows([csv_cell(row.get(head)) for head in heads] for row in rows)
    return out.getvalue().rstrip("\n")


def json_text(value: Any) -> str:
    """Return JSON without missing values; ASCII, so that it cannot act on a terminal."""
    return json.dumps(_present(value), indent=1, allow_nan=False)


def _present(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _present(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_present(inner) for inner in value]
    return value
