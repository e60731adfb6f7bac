"""Tables whose cells stand between commas, tabs or semicolons."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.read.formats.structured import AXES, NO_COLUMNS, as_numbers, logs_of
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from analysis.read.text.values import number
from analysis.read.vocabulary import is_loss, meaning

FIELD_LIMIT = 1 << 17
MOST_CELLS = 2000


def delimiter_of(start: bytes, columns: Mapping[str, str] = NO_COLUMNS) -> str | None:
    """Return the delimiter of a table whose first bytes are given; None for anything else.

    A table names an axis, or anything above a row of as many numbers.
    """
    lines = [line.strip("\ufeff\r") for line in start.decode("utf-8", "replace").split("\n")]
    if len(lines[0]) > FIELD_LIMIT or len(lines) == 1:
        return None
    below = next((line for line in lines[1:] if line.strip()), "")
    for sign in ",\t;":
        head, row = lines[0].split(sign), below.split(sign)
        cells = [cell.strip() for cell in row if cell.strip()]
        is_above = len(row) == len(head) and not any(math.isnan(number(cell)) for cell in cells)
        is_table = _is_header(head, columns) or (is_above and _are_names(head))
        if any(cell.strip() for cell in head[1:]) and len(row) > 1 and is_table:
            return sign
    return None


def _is_header(cells: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether cells name a step or an epoch, under a known name or the user's."""
    names = {cell.strip().strip('"').strip() for cell in cells}
    if columns.get("step") in names:
        return True
    if any(number(name) % 1 > 0 for name in names):
        return False
    return any(meaning(name)[0] in AXES or name == "i" for name in names)


def _are_names(cells: Sequence[str]) -> bool:
    """Whether cells are names, and neither numbers nor names with values."""
    return all(math.isnan(number(cell.strip())) for cell in cells) and not any(
        re.search(r"\d\.|[:=]", cell) for cell in cells
    )


def read_csv(path: Path, *, name: str, delimiter: str, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the runs in a table; a header that returns in the middle changes the columns.

    A column `run` of names tells them apart.
    """
    tables: dict[str, list[tuple[int, dict[str, float]]]] = {}
    head = list[str]()
    # What TensorBoard downloads.
    tag = re.search(r"-tag-(.+)\.csv$", path.name)
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        for line, cells in _cells(text, delimiter):
            if _is_header(cells, columns) or (any(map(is_loss, cells)) and _are_names(cells)):
                head = _distinct([cell.strip() for cell in cells[:MOST_CELLS]])
                if tag and "Value" not in columns.values():
                    head = [tag[1] if cell == "Value" else cell for cell in head]
                continue
            named = dict(zip(head, cells, strict=False))
            # A comma is one of decimals where another sign stands between cells.
            numbers = as_numbers(named, has_commas=delimiter != ",")
            run = "" if "run" in numbers else named.get("run", "").strip()
            tables.setdefault(run or name, []).append((line, numbers))
    of_page = dict.fromkeys(cell.rpartition(" - ")[0] for cell in head if cell.endswith("__MIN"))
    rows = tables.get(name, [])
    tables = {run: _of_run(rows, run) for run in of_page} or tables or {name: rows}
    options: Mapping[str, Any] = {"path": path, "kind": "csv", "columns": columns}
    return [log for run, own in tables.items() for log in logs_of(own, name=run, **options)]


def _of_run(
    rows: Sequence[tuple[int, dict[str, float]]], run: str
) -> list[tuple[int, dict[str, float]]]:
    """Return the rows of a run in a table that the web page of wandb exports.

    It has columns `RUN - NAME`, also of the least and the greatest value of each.
    """
    found = []
    for line, named in rows:
        parts = {name.rpartition(" - "): value for name, value in named.items()}
        kept = {whose: v for whose, v in parts.items() if not whose[2].endswith(("__MIN", "__MAX"))}
        if any(of == run for of, *_ in kept):
            own = {metric: value for (of, _, metric), value in kept.items() if of in ("", run)}
            found.append((line, own))
    return found


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a blank for each time that they stood before."""
    before = Counter[str]()
    found = []
    for name in names:
        found.append(name + " " * before[name])
        before[name] += 1
    return found


def _cells(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader((line.replace("\0", "") for line in text), delimiter=delimiter)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if cells:
            yield reader.line_num, cells
