"""Tables: text as wide as the terminal for people, JSON and CSV for machines.

A number is never cut. A column with one value in all rows becomes a line above the table; texts
wrap, and columns that still do not fit are left out, and a line below names them.
"""

import contextlib
import csv
import io
import itertools
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Container, Mapping, Sequence
from typing import Any

from configs.terminal import csv_cell, printable

Row = Mapping[str, Any]

# The columns of a table in a pipe or a file.
WIDTH = 100
# Sentences and names of more characters wrap if the table is too wide.
SENTENCE, NAME = 16, 32
GAP = 2
# Columns that are never left out, and keep their place if all rows are alike.
RESULTS = r"^(state|speedup|ratio|speed_ratio|b_simple|exact)$|verdict$"
NUMBERS = r"[-+\d.,:/%x\[\] einfa]*"
# What a terminal shows in red (31), green (32) and yellow (33), by the first word of a cell.
COLOURS = {
    "failed": 31, "fail": 31, "lost": 31, "cancelled": 31, "timeout": 31, "slower": 31,
    "different": 31, "disagrees": 31, "running": 32, "pass": 32, "done": 32, "faster": 32,
    "warn": 33, "stopped": 33,
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
    name = min(NAME, max(SENTENCE, width // 3))
    least = {head: _least(head, column, name) for head, column in cells.items()}
    kept, left_out = list(cells), list[str]()
    while (free := width + GAP - sum(least[head] + GAP for head in kept)) < 0:
        others = [head for head in kept if not re.search(RESULTS, head)]
        if len(others) < 2:
            break
        left_out.append(next((head for head in drop if head in others), others[-1]))
        kept.remove(left_out[-1])
    widths = {head: least[head] for head in kept}
    free = _widened(widths, {head: max(map(len, cells[head])) for head in kept}, free)
    for head in left_out[::-1]:
        # A narrow column may fit beside those that were left out after it.
        if least[head] + GAP <= free:
            left_out.remove(head)
            widths[head] = least[head]
            free -= least[head] + GAP
    _widened(widths, {head: len(heading(head)) for head in widths}, free)
    return {head: widths[head] for head in cells if head in widths}, left_out


def _widened(widths: dict[str, int], wanted: Mapping[str, int], free: int) -> int:
    """Widen columns to what is wanted, those that lack the least first; return what is left."""
    missing = {head: max(0, wanted[head] - widths[head]) for head in widths}
    for number, head in enumerate(sorted(missing, key=missing.__getitem__)):
        more = max(0, min(missing[head], free // (len(missing) - number)))
        widths[head] += more
        free -= more
    return free


def _least(head: str, column: Sequence[str], name: int) -> int:
    """Return the least width of a column: numbers stay whole, and longer texts wrap."""
    longest = max(map(len, column))
    if not all(re.fullmatch(NUMBERS, cell) for cell in column):
        longest = min(longest, SENTENCE if any(" " in cell for cell in column) else name)
    return max(longest, max(map(len, _broken(head).split()), default=0))


def heading(name: str) -> str:
    """Return a column's name in words: `images_per_s` becomes images/s; a key stays as typed."""
    return name if "." in name else name.replace("_per_", "/").replace("_", " ")


def _broken(head: str) -> str:
    """Return a heading with a space wherever a line may end; a key may end after its dots."""
    return re.sub(r"(?<=[._])(?=.)", " ", head) if "." in head else heading(head)


def _head_lines(head: str, width: int) -> list[str]:
    if len(heading(head)) <= width:
        return [heading(head)]
    return [re.sub(r"(?<=[._]) ", "", line) for line in textwrap.wrap(_broken(head), width)]


def _rendered(columns: Mapping[str, tuple[Sequence[str], int]], numbers: Container[str]) -> str:
    is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lines = list[str]()
    widths = [width for _, width in columns.values()]
    for row in (list(columns), *zip(*(column for column, _ in columns.values()), strict=True)):
        colours = [COLOURS.get(cell.split(" ")[0]) if is_coloured else None for cell in row]
        wrap = textwrap.wrap if lines else _head_lines
        parts = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in itertools.zip_longest(*parts, fillvalue=""):
            cells = [
                part.rjust(width) if head in numbers else part.ljust(width)
                for head, part, width in zip(columns, line, widths, strict=True)
            ]
            shown = (
                f"\x1b[{colour}m{cell}\x1b[0m" if colour else cell
                for cell, colour in zip(cells, colours, strict=True)
            )
            lines.append((" " * GAP).join(shown).rstrip())
    return "\n".join(lines)


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
