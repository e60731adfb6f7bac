"""CSV with a step column: Lightning's `metrics.csv`, exports of dashboards, anybody's."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from analysis.read.columns import from_rows
from analysis.read.names import STEP
from analysis.read.run_log import RunLog
from analysis.read.text.chunks import open_bytes
from analysis.read.text.shapes import number

FIELD_LIMIT = 1 << 17
MOST_COLUMNS = 2000


def header_of(start: bytes) -> list[str] | None:
    """The header of a CSV whose first bytes are given; None where it names no step."""
    line = start.partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r")
    if "," not in line or len(line) > FIELD_LIMIT:
        return None
    cells = [cell.strip().strip('"') for cell in line.split(",")]
    return cells if step_name(cells) else None


def step_name(cells: list[str]) -> str | None:
    """The column that counts steps."""
    spelled = {cell.strip().lower(): cell for cell in cells}
    return next((spelled[name] for name in STEP if name in spelled), None)


def read_csv(path: Path, *, name: str) -> list[RunLog]:
    """The run in a CSV file; a header that returns in the middle changes the columns."""
    rows = []
    head: list[str] = []
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        for line, cells in _cells(text):
            if step_name(cells):
                head = cells[:MOST_COLUMNS]
                continue
            numbers = (number(cell.encode()) for cell in cells)
            values = dict(zip(head, numbers, strict=False))
            rows.append((line, {name: v for name, v in values.items() if not np.isnan(v)}))
    return from_rows(rows, path=path, name=name, kind="csv")


def _cells(text: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(line.replace("\0", "") for line in text)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if cells:
            yield reader.line_num, cells
