"""Records of named values, as JSON, CSV, wandb and TensorBoard keep them.

All share the names of `analysis.read.columns`.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.assemble import Placed, assemble
from analysis.read.columns import Cells, Rows, filled, losses_by_other_names
from analysis.read.epochs import on_axis
from analysis.read.evaluations import is_result
from analysis.read.run_log import RunLog
from analysis.read.text.values import (
    STAMP,
    clock_s,
    moments,
    number,
)
from analysis.read.vocabulary import (
    counted_by,
    is_evaluation,
    is_loss,
    meaning,
    names_evaluation,
    takes_phase,
    tells_unit,
    unit_factor,
)

# Without a count, records that name a loss are the lines of a training if they are as many.
FEWEST_WITHOUT_STEP = 3
_TENSOR = re.compile(r"tensor\(([-+.\de]+)")
_OF_TOTAL = re.compile(r"(\d{1,15}) ?/ ?\d{1,15}")
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
    for name, value in values.items():
        if type(value) is float or type(value) is int:
            # JSON's and Python's NaN are printed values that are not finite.
            found[name] = float(value) if abs(value) < 1e300 else math.inf
        elif isinstance(value, str) and value.strip():
            if names_evaluation(str(name), value.strip()):
                phase = value.strip()
            own, printed = _of_text(name, value.strip(), has_commas=has_commas)
            if not math.isnan(printed):
                found[own] = printed
    if phase:
        return {
            f"{phase}/{name}" if takes_phase(name) and not is_evaluation(name) else name: one
            for name, one in found.items()
        }
    return found


def _of_text(name: Any, text: str, *, has_commas: bool) -> tuple[Any, float]:
    """Return the name and the number of a text, NaN if it is neither a number nor a time."""
    if wrapped := _TENSOR.match(text):
        text = wrapped[1]
    printed = number(text.replace(",", ".") if has_commas else text)
    column = meaning(str(name))[0]
    if not math.isnan(printed):
        return name, printed * (meaning(str(name), "%")[1] if text.endswith("%") else 1.0)
    if column in ("time", "duration_s") and (stamp := STAMP.match(text)) and text[:4].isdigit():
        # In another order one value does not tell whether the day or the month is first.
        return name, float(moments([stamp[0]])[0])
    if column == "elapsed_s":
        # `0:05` may be minutes and seconds, or hours and minutes.
        return name if text.count(":") == 1 else "elapsed_s", clock_s(text)
    if count := _OF_TOTAL.fullmatch(text):
        # `"global_step/max_steps": "20/2833"`.
        return str(name).partition("/")[0], float(count[1])
    return name, math.nan


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
            # A user means its size, also where it changes.
            shown = "batch size" if column == "batch" else column
            cells.found[shown] = at, [factor * number for number in read]
    return log_of_cells(cells, lines, path=path, name=name, kind=kind)


def log_of_cells(
    cells: Cells, lines: Sequence[int], *, path: Path, name: str, kind: str
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
    axis_name = next((own for own in AXES if own in names), "")
    if axis_name:
        # Evaluations without a step are at the row before them.
        results = [~np.isnan(columns[name]) for name in filter(is_result, columns)]
        places = columns[axis_name]
        columns[axis_name] = np.where(np.any(results, axis=0), filled(places), places)
    if names.keys().isdisjoint(AXES):
        losses = [name for name in names if is_loss(name) and not is_evaluation(name)]
        if len(lines) < FEWEST_WITHOUT_STEP or not losses:
            return []
        columns["step"] = np.arange(1.0, len(lines) + 1)
    columns |= {"line": np.array(lines, dtype=float), "place": np.arange(len(lines), dtype=float)}
    renamed, doubt = losses_by_other_names(columns)
    columns |= {own: columns[name] for name, own in renamed.items()}
    placed = on_axis(Rows(columns), step_axis=counted_by(names.get("step", "")))
    assert placed is not None
    rows, axis, uncertain = placed
    if names.keys().isdisjoint(AXES):
        axis = "unit"
        uncertain["step"] = "records are counted: they name neither a step nor an epoch"
    if len(lines) == 1:
        doubt = doubt or "one record may be the mean of the whole training"
    uncertain |= {"loss": doubt} if doubt else {}
    for own, quantity in QUANTITIES.items():
        if own in names and (other := cells.alike(own, names[own])) is not None:
            shown = f"{names[own].strip()!r} and {other.strip()!r}"
            uncertain[quantity] = f"two readings: {shown}; the first is shown"
    found = Placed(
        rows=rows,
        axis=axis,
        uncertain=uncertain,
        without_unit=frozenset(own for own, foreign in names.items() if not tells_unit(foreign)),
        loss_name=names.get("loss", ""),
    )
    return assemble(found, path=path, name=name, kind=kind, is_text=False)
