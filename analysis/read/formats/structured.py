"""Files of named values: JSON lines, JSON and CSV.

All share the names of `analysis.read.columns`.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.assemble import Placed, assemble
from analysis.read.clock import EPOCH_TIMES, median
from analysis.read.columns import Cells, Rows, losses_by_other_names
from analysis.read.epochs import on_axis
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from analysis.read.text.values import STAMP, clock_s, moments, number
from analysis.read.vocabulary import meaning, tells_unit, unit_factor
from configs.errors import Unreadable

FIELD_LIMIT = 1 << 17
MOST_CELLS = 2000
LARGEST_JSON = 1 << 28
_TIME_OF_DAY = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")
NO_COLUMNS: Mapping[str, str] = {}
AXES = frozenset(["step", "images", "epoch"])


def as_numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """Return the entries that are numbers, numbers in quotes, durations or time stamps."""
    found = {}
    for name, value in values.items():
        if type(value) is float or type(value) is int:
            # JSON's and Python's NaN are printed values that are not finite.
            found[name] = float(value) if abs(value) < 1e300 else math.inf
        elif isinstance(value, str) and value.strip():
            text = value.strip()
            printed = number(text)
            is_time = meaning(str(name))[0] in ("time", "duration_s")
            if math.isnan(printed) and is_time and _TIME_OF_DAY.fullmatch(text):
                found["day_s"] = clock_s(text)
            elif math.isnan(printed) and is_time and (stamp := STAMP.match(text)):
                # One value does not tell whether the day or the month is first.
                printed = float(moments([stamp[0]])[0]) if text[:4].isdigit() else math.nan
            elif math.isnan(printed) and meaning(str(name))[0] == "elapsed_s":
                printed = clock_s(text)
            if not math.isnan(printed):
                found[name] = printed
    return found


def logs_of(
    rows: Iterable[tuple[int, Mapping[str, float]]],
    *,
    path: Path,
    name: str,
    kind: str,
    columns: Mapping[str, str] = NO_COLUMNS,
) -> list[RunLog]:
    """Return the run of (line, numbers by name) rows; none if no row has a step and a number.

    `columns` are the names that a user gave: those of the file by ours.
    """
    cells, lines = Cells(), list[int]()
    for line, values in rows:
        cells.add(len(lines), values)
        lines.append(line)
    for column, own in columns.items():
        if own in cells.found:
            at, read = cells.found.pop(own)
            unit = unit_factor(own) if column.endswith("_s") else 1.0
            factor = 1 / unit if "_per_" in column else unit
            cells.found[column] = at, [factor * number for number in read]
    return log_of_cells(cells, lines, path=path, name=name, kind=kind)


def log_of_cells(
    cells: Cells, lines: Sequence[int], *, path: Path, name: str, kind: str
) -> list[RunLog]:
    """Return the runs of cells on the first axis that they have: steps, images, epochs."""
    columns = cells.columns(len(lines))
    without_unit = {own for own, foreign in cells.names().items() if not tells_unit(foreign)}
    if columns.keys().isdisjoint(AXES):
        return []
    if "time" not in columns and median(columns.get("duration_s")) >= EPOCH_TIMES:
        columns["time"] = columns.pop("duration_s")
    columns |= {"line": np.array(lines, dtype=float), "place": np.arange(len(lines), dtype=float)}
    renamed, doubt = losses_by_other_names(columns)
    columns |= {own: columns[name] for name, own in renamed.items()}
    placed = on_axis(Rows(columns))
    assert placed is not None
    rows, axis, uncertain = placed
    found = Placed(
        rows=rows,
        axis=axis,
        uncertain=uncertain | ({"loss": doubt} if doubt else {}),
        without_unit=frozenset(without_unit),
        loss_name=cells.names().get("loss", ""),
    )
    return assemble(found, path=path, name=name, kind=kind, is_text=False)


def read_json(path: Path, *, name: str, columns: Mapping[str, str]) -> list[RunLog] | None:
    """Return the runs in JSON lines, or in a JSON file with a list of records; None if in neither.

    `columns` are the names that a user gave: those of the file by ours.
    """
    with open_bytes(path) as file:
        text = file.read(LARGEST_JSON + 1)
    is_state = b'"log_history"' in text
    if len(text) > LARGEST_JSON:
        # A file of data may be as large; a log of that size is named.
        if path.suffix == ".jsonl" or is_state:
            raise Unreadable(f"{path}: larger than {LARGEST_JSON >> 20} MiB of JSON")
        return None
    found, kind = list(_json_lines(text)), "JSON lines"
    if len(found) < 2:
        tree = _json(text)
        if tree is None and not is_state:
            return None
        records, kind = _records(tree), "JSON"
        if tree is None or (isinstance(tree, dict) and "log_history" in tree):
            if tree is None or not isinstance(tree["log_history"], list):
                raise Unreadable(f"{path}: looks like a trainer_state.json but is damaged")
            records, kind = tree["log_history"], "HF Trainer"
        found = list(enumerate(map(_flat, records), start=1))
    return logs_of(found, path=path, name=name, kind=kind, columns=columns)


def _json(text: bytes) -> Any:
    """Return the value of a JSON text, None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_lines(text: bytes) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the records of JSON lines; nothing if the first line is not a whole object."""
    for line, part in enumerate(text.split(b"\n"), start=1):
        record = _json(part) if part.strip() else None
        if isinstance(record, dict):
            yield line, _flat(record)
        elif line == 1 and part.strip():
            return


def _flat(record: Any, prefix: str = "") -> dict[str, float]:
    """Return the numbers of a record; of a nested object its mean, or names joined by `/`."""
    if not isinstance(record, dict):
        return {}
    found = as_numbers({f"{prefix}{name}": value for name, value in record.items()})
    for name, value in record.items():
        if isinstance(value, dict) and not prefix:
            inner = _flat(value, f"{name}/")
            mean = inner.get(f"{name}/mean")
            found |= inner if mean is None else {str(name): mean}
    return found


def _records(tree: Any) -> list[Any]:
    """Return the list of records in a JSON tree: itself, or one of its values."""
    if isinstance(tree, list):
        return tree
    if not isinstance(tree, dict):
        return []
    lists = (value for value in tree.values() if isinstance(value, list) and value)
    return next((found for found in lists if all(isinstance(one, dict) for one in found)), [])


def delimiter_of(start: bytes, columns: Mapping[str, str] = NO_COLUMNS) -> str | None:
    """Return the delimiter of a table whose first bytes are given; None if it names no axis."""
    line = start.partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r")
    if len(line) > FIELD_LIMIT:
        return None
    signs = (sign for sign in ",\t;" if sign in line and _is_header(line.split(sign), columns))
    return next(signs, None)


def _is_header(cells: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether cells name a step or an epoch, under a known name or the user's."""
    names = {cell.strip().strip('"').strip() for cell in cells}
    if columns.get("step") in names:
        return True
    return any(meaning(name)[0] in AXES for name in names)


def read_csv(path: Path, *, name: str, delimiter: str, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the runs in a table; a header that returns in the middle changes the columns."""
    rows: list[tuple[int, dict[str, float]]] = []
    head: list[str] = []
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        for line, cells in _cells(text, delimiter):
            if _is_header(cells, columns):
                head = [cell.strip() for cell in cells[:MOST_CELLS]]
                continue
            rows.append((line, as_numbers(dict(zip(head, cells, strict=False)))))
    return logs_of(rows, path=path, name=name, kind="csv", columns=columns)


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
