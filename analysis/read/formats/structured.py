"""Files of named values: JSON lines, JSON and CSV.

All share the names of `analysis.read.columns`.
"""

import ast
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from analysis.read.assemble import Placed, assemble
from analysis.read.clock import EPOCH_TIMES, median
from analysis.read.columns import Cells, Rows, losses_by_other_names
from analysis.read.epochs import on_axis
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from analysis.read.text.values import (
    STAMP,
    clock_s,
    has_decimal_commas,
    moments,
    number,
    with_points,
)
from analysis.read.vocabulary import (
    is_evaluation,
    is_loss,
    is_tag,
    meaning,
    names_evaluation,
    takes_phase,
    tells_unit,
    unit_factor,
)
from configs.errors import Unreadable

FIELD_LIMIT = 1 << 17
MOST_CELLS = 2000
LARGEST_JSON = 1 << 28
# The first bytes, by which a file's sign of decimals is known.
START = 1 << 18
# Without a count, records that name a loss are the lines of a training if they are as many.
FEWEST_WITHOUT_STEP = 3
_HISTORY = re.compile(r"\{['\"][\w /-]{1,60}['\"]: \[[^{}]{1,1000000}\]\}")
_NAN = re.compile(r"\b(?:nan|inf|NaN|Infinity)\b")
_QUOTED = re.compile(r'"([-+]?\d[\d.,]*)"')
_OF_TOTAL = re.compile(r"(\d{1,15}) ?/ ?\d{1,15}")
_TIME_OF_DAY = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")
NO_COLUMNS: Mapping[str, str] = {}
AXES = ("step", "images", "epoch")
# Columns that a doubt is about, and the quantity that it makes uncertain.
QUANTITIES = {
    "step": "step", "loss": "loss", "time": "time", "duration_s": "time", "elapsed_s": "time",
    "step_s": "printed", "steps_per_s": "printed",
}  # fmt: skip


def as_numbers(values: Mapping[Any, Any], *, has_commas: bool = False) -> dict[str, float]:
    """Return the entries that are numbers, numbers in quotes, durations or time stamps.

    With `has_commas` decimals stand behind commas. A text such as `val` in a column such as `split`
    is put before the names of results.
    """
    found, phase = {}, ""
    values = _with_named_value(values)
    for name, value in values.items():
        if type(value) is float or type(value) is int:
            # JSON's and Python's NaN are printed values that are not finite.
            found[name] = float(value) if abs(value) < 1e300 else math.inf
        elif isinstance(value, str) and value.strip():
            text = value.strip()
            printed = number(with_points(text) if has_commas else text)
            if text.endswith("%"):
                printed *= meaning(str(name), "%")[1]
            if names_evaluation(str(name), text):
                phase = text
            is_time = meaning(str(name))[0] in ("time", "duration_s")
            if math.isnan(printed) and is_time and _TIME_OF_DAY.fullmatch(text):
                found["day_s"] = clock_s(text)
            elif math.isnan(printed) and is_time and (stamp := STAMP.match(text)):
                # One value does not tell whether the day or the month is first.
                printed = float(moments([stamp[0]])[0]) if text[:4].isdigit() else math.nan
            elif math.isnan(printed) and meaning(str(name))[0] == "elapsed_s":
                printed = clock_s(text)
                # `0:05` may be minutes and seconds, or hours and minutes.
                name = name if text.count(":") == 1 else "elapsed_s"
            elif math.isnan(printed) and (count := _OF_TOTAL.fullmatch(text)):
                # `"global_step/max_steps": "20/2833"`.
                printed = float(count[1])
                name = str(name).partition("/")[0]
            if not math.isnan(printed):
                found[name] = printed
    if phase:
        return {
            f"{phase}/{name}" if takes_phase(name) and not is_evaluation(name) else name: one
            for name, one in found.items()
        }
    return found


def _with_named_value(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the entries of a long table's row, `type: train, value: 3.1`, with a named value."""
    if "value" not in values:
        return values
    names = (text for name, text in values.items() if isinstance(text, str) and is_tag(str(name)))
    name = next(names, "value")
    return {**{n: value for n, value in values.items() if n != "value"}, name: values["value"]}


def logs_of(
    rows: Iterable[tuple[int, Mapping[str, float]]],
    *,
    path: Path,
    name: str,
    kind: str,
    columns: Mapping[str, str] = NO_COLUMNS,
    rounded: Collection[str] = (),
) -> list[RunLog]:
    """Return the run of (line, numbers by name) rows; none if no row has a step and a number.

    `columns` are the names that a user gave: those of the file by ours. `rounded` are the names of
    those that are printed with a few digits, `1.58e+04`.
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
            rounded = [column if name == own else name for name in rounded]
    return log_of_cells(cells, lines, path=path, name=name, kind=kind, rounded=rounded)


def log_of_cells(
    cells: Cells,
    lines: Sequence[int],
    *,
    path: Path,
    name: str,
    kind: str,
    rounded: Collection[str] = (),
) -> list[RunLog]:
    """Return the runs of cells on the first axis that they have: steps, images, epochs."""
    for foreign in [one for one in cells.found if meaning(one)[0] == "step"]:
        values = cells.found[foreign][1]
        is_whole = [value == math.floor(value) for value in values if math.isfinite(value)]
        if 2 * sum(is_whole) < len(is_whole):
            # Seconds of a step, for one.
            cells.found[f"{foreign} value"] = cells.found.pop(foreign)
    if cells.names().keys().isdisjoint(AXES) and "i" in cells.found:
        cells.found["step"] = cells.found.pop("i")
    columns, names = cells.columns(len(lines)), cells.names()
    if names.keys().isdisjoint(AXES):
        losses = [name for name in names if is_loss(name) and not is_evaluation(name)]
        if len(lines) < FEWEST_WITHOUT_STEP or not losses:
            return []
        columns["step"] = np.arange(1.0, len(lines) + 1)
    if "time" not in columns and median(columns.get("duration_s")) >= EPOCH_TIMES:
        columns["time"] = columns.pop("duration_s")
    columns |= {"line": np.array(lines, dtype=float), "place": np.arange(len(lines), dtype=float)}
    renamed, doubt = losses_by_other_names(columns)
    columns |= {own: columns[name] for name, own in renamed.items()}
    placed = on_axis(Rows(columns))
    assert placed is not None
    rows, axis, uncertain = placed
    if names.keys().isdisjoint(AXES):
        axis = "unit"
        uncertain["step"] = "records are counted: they name neither a step nor an epoch"
    uncertain |= {"loss": doubt} if doubt else {}
    for own, quantity in QUANTITIES.items():
        if own in names and (other := cells.alike(own, names[own])) is not None:
            shown = f"{names[own].strip()!r} and {other.strip()!r}"
            uncertain[quantity] = f"two readings: {shown}; the first is shown"
    if names.get(next((own for own in AXES if own in names), "")) in rounded:
        uncertain["step"] = "rounded to a few digits, not known exactly"
    found = Placed(
        rows=rows,
        axis=axis,
        uncertain=uncertain,
        without_unit=frozenset(own for own, foreign in names.items() if not tells_unit(foreign)),
        loss_name=names.get("loss", ""),
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
    start = " ".join(_QUOTED.findall(text[:START].decode("utf-8", "replace")))
    has_commas = has_decimal_commas(start)
    found, kind = list(_json_lines(text, has_commas)), "JSON lines"
    if len(found) < 2:
        tree = _json(text)
        if tree is None and not is_state:
            return None
        records, kind = _records(tree) or _records_of_lists(tree), "JSON"
        if tree is None or (isinstance(tree, dict) and "log_history" in tree):
            if tree is None or not isinstance(tree["log_history"], list):
                raise Unreadable(f"{path}: looks like a trainer_state.json but is damaged")
            records, kind = tree["log_history"], "HF Trainer"
        flat = (_flat(record, has_commas=has_commas) for record in records)
        found = list(enumerate(flat, start=1))
    return logs_of(found, path=path, name=name, kind=kind, columns=columns)


def _json(text: bytes) -> Any:
    """Return the value of a JSON text, None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_lines(text: bytes, has_commas: bool) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the records of JSON lines; nothing if the first line is not a whole object."""
    for line, part in enumerate(text.split(b"\n"), start=1):
        record = _json(part) if part.strip() else None
        if isinstance(record, dict):
            yield line, _flat(record, has_commas=has_commas)
        elif line == 1 and part.strip():
            return


def _flat(record: Any, *, has_commas: bool = False) -> dict[str, float]:
    """Return the numbers of a record; of a nested object its mean, or names joined by `/`."""
    if not isinstance(record, dict):
        return {}
    named: dict[str, Any] = {}
    for name, value in record.items():
        if not isinstance(value, dict):
            named[name] = value
        elif type(value.get("mean")) in (int, float):
            named[name] = value["mean"]
        else:
            named |= {f"{name}/{inner}": one for inner, one in value.items()}
    return as_numbers(named, has_commas=has_commas)


def _records(tree: Any) -> list[Any]:
    """Return the list of records in a JSON tree: itself, or one of its values."""
    if isinstance(tree, list):
        return tree
    if not isinstance(tree, dict):
        return []
    lists = (value for value in tree.values() if isinstance(value, list) and value)
    return next((found for found in lists if all(isinstance(one, dict) for one in found)), [])


def _records_of_lists(tree: Any) -> list[Any]:
    """Return the records of lists of numbers with one length: `{"loss": [3.1, 2.7], ...}`.

    The lists may be one level deeper, as in `{"history": {"loss": [3.1, 2.7]}}`.
    """
    trees = [tree, *tree.values()] if isinstance(tree, dict) else []
    for node in trees:
        lists = {
            str(name): value for name, value in (node.items() if isinstance(node, dict) else ())
            if isinstance(value, list) and all(type(one) in (int, float, NoneType) for one in value)
        }  # fmt: skip
        if any(meaning(name)[0] in AXES or is_loss(name) for name in lists):
            (length, _), *_ = Counter(map(len, lists.values())).most_common(1)
            kept = {name: value for name, value in lists.items() if len(value) == length}
            return [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
    return []


def read_history(path: Path, *, name: str) -> list[RunLog]:
    """Return the run in a dict of lists that a program prints at its end, as of Keras."""
    with open_bytes(path) as file:
        text = file.read(LARGEST_JSON).decode("utf-8", "replace")
    for match in _HISTORY.finditer(text):
        try:
            records = _records_of_lists(ast.literal_eval(_NAN.sub("None", match[0])))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if records:
            line = text.count("\n", 0, match.start()) + 1
            rows = ((line, as_numbers(record)) for record in records)
            return logs_of(rows, path=path, name=name, kind="dict of lists")
    return []


def delimiter_of(start: bytes, columns: Mapping[str, str] = NO_COLUMNS) -> str | None:
    """Return the delimiter of a table whose first bytes are given; None if it names no axis."""
    lines = [line.strip("\ufeff\r") for line in start.decode("utf-8", "replace").split("\n")]
    if len(lines[0]) > FIELD_LIMIT:
        return None
    for sign in ",\t;":
        head, *rows = (line.split(sign) for line in lines[:2])
        is_table = _is_header(head, columns) or (_names_loss(head) and any(map(_is_row, rows)))
        if len(head) > 1 and is_table:
            return sign
    return None


def _is_header(cells: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether cells name a step or an epoch, under a known name or the user's."""
    names = {cell.strip().strip('"').strip() for cell in cells}
    if columns.get("step") in names:
        return True
    return any(meaning(name)[0] in AXES or name == "i" for name in names)


def _names_loss(cells: Sequence[str]) -> bool:
    """Whether cells are names, one of them of a loss."""
    return any(map(is_loss, cells)) and not any(re.search(r"\d\.|[:=]", cell) for cell in cells)


def _is_row(cells: Sequence[str]) -> bool:
    return not any(cell.strip() and math.isnan(number(cell.strip())) for cell in cells)


def read_csv(path: Path, *, name: str, delimiter: str, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the runs in a table; a header that returns in the middle changes the columns."""
    rows: list[tuple[int, dict[str, float]]] = []
    head, rounded = list[str](), set[str]()
    with open_bytes(path) as file:
        start = file.read(START).decode("utf-8", "replace")
    if delimiter == ",":
        # Only a number in quotes may have a comma.
        start = " ".join(_QUOTED.findall(start))
    has_commas = has_decimal_commas(start) or (delimiter == ";" and "." not in start)
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        for line, cells in _cells(text, delimiter):
            if _is_header(cells, columns) or _names_loss(cells):
                head = _distinct([cell.strip() for cell in cells[:MOST_CELLS]])
                continue
            named = dict(zip(head, cells, strict=False))
            rounded.update(name for name, cell in named.items() if "e+" in cell)
            rows.append((line, as_numbers(named, has_commas=has_commas)))
    return logs_of(rows, path=path, name=name, kind="csv", columns=columns, rounded=rounded)


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
