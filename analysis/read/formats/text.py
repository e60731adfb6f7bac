"""Read a text log: the rows of the format that is trusted most become runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read import assemble
from analysis.read.columns import Rows
from analysis.read.formats import lines
from analysis.read.formats.mlperf import MLPERF, events_of, facts_of, on_one_axis
from analysis.read.run_log import RunLog
from analysis.read.text.patterns import Format
from analysis.read.text.scan import last_drawings, scan

FEWEST_STEPS, FEWEST_PAIRS = 3, 10


def read_text(path: Path, *, name: str, own: tuple[Format, ...] = ()) -> list[RunLog]:
    """Return the runs in a text file, by the first format with losses, else with steps.

    A user's `own` format is the only one tried.
    """
    formats = own or lines.FORMATS
    found = scan(path, formats)
    known = _format_of(found, formats)
    if known is None:
        return []
    rows, remarks = assemble.one_rank(found[known.name])
    evaluations: tuple[Mapping[str, Any], ...] = ()
    if known is MLPERF:
        events = events_of(found[known.name])
        placed = on_one_axis(rows)
        rows, axis, evaluations = placed.training, placed.axis, placed.evaluations
        remarks += placed.remarks
    else:
        if "record" in rows:
            number = np.cumsum(~np.isnan(rows["record"])) - 1
            rows = rows.take(number >= 0).merged(number[number >= 0])
        if known.is_redrawn:
            rows = _training_bar(rows)
        rows, axis, more = _stepped(known, rows, found)
        remarks += more
    if not len(rows):
        return []
    logs = assemble.assemble(rows, path=path, name=name, kind=known.name, axis=axis)
    if known is MLPERF and len(logs) == 1:
        events = (*events, *logs[0].events)
        logs = [replace(logs[0], facts=facts_of(path), events=events, evaluations=evaluations)]
    what = "units that the log does not name" if axis == "unit" else f"{axis}s"
    axis_remark = [f"the axis counts {what}"] if axis != "step" else []
    return [_remarked(log, [*remarks, *axis_remark]) for log in logs]


def _format_of(found: Mapping[str, Rows], formats: Sequence[Format]) -> Format | None:
    """Return the first format that has losses, else the first with some steps."""
    present = [known for known in formats if known.name in found]
    trained = (known for known in present if _has_losses(known, found[known.name]))
    stepped = (known for known in present if _has_steps(known, found[known.name]))
    return next(trained, None) or next(stepped, None)


def _has_losses(known: Format, rows: Rows) -> bool:
    if known is MLPERF:
        return any(name.startswith("axis_") for name in rows.columns)
    if known is lines.STEP_LOSS:
        return len(rows) >= FEWEST_PAIRS and bool((np.diff(rows["step"]) > 0).all())
    has_axis = known is lines.TRAINER or "step" in rows or "epoch" in rows
    return has_axis and not np.isnan(rows["loss"]).all()


def _has_steps(known: Format, rows: Rows) -> bool:
    axis = rows["step" if "step" in rows else "images"]
    if known is lines.KEY_VALUE:
        return False
    return len(np.unique(axis[~np.isnan(axis)])) >= FEWEST_STEPS


def _stepped(known: Format, rows: Rows, found: Mapping[str, Rows]) -> tuple[Rows, str, list[str]]:
    """Return rows with a step: their own, a bar's, else epochs, images or a count of losses."""
    if known is lines.TRAINER:
        return _trainer_steps(rows, found.get(lines.BARS.name))
    for column, axis in (("step", "step"), ("images", "sample"), ("epoch", "epoch")):
        if column in rows:
            rows = rows.take(~np.isnan(rows[column]) & (rows[column] >= 0))
            rows = rows.replace(step=np.ceil(rows[column]))
            is_within = axis == "step" and "epoch" in rows and known.epochs_from is None
            return assemble.through_epochs(rows) if is_within else rows, axis, []
    return rows.take(np.zeros(0, dtype=np.int64)), "step", []


def _trainer_steps(rows: Rows, bars: Rows | None) -> tuple[Rows, str, list[str]]:
    """Return the Trainer's rows with the step and clock of the bar before each, else counted."""
    # The last row has the mean loss of the whole training.
    is_summary = ~np.isnan(rows["train_runtime"])
    rows = rows.replace(loss=np.where(is_summary, np.nan, rows["loss"]))
    rows = rows.take(~np.isnan(rows["loss"]))
    if "step" in rows and (rows["step"] > 0).any():
        return rows, "step", []
    if bars is None:
        remark = "the log names no steps: losses are counted instead"
        return rows.replace(step=np.arange(1.0, len(rows) + 1)), "step", [remark]
    bars = _training_bar(bars)
    before = np.maximum(np.searchsorted(bars["place"], rows["place"]) - 1, 0)
    stepped = rows.replace(step=bars["step"][before], bar_s=bars["bar_s"][before])
    return stepped, "step", ["steps and clock are those of the bar before each loss"]


def _training_bar(rows: Rows) -> Rows:
    """Return the last drawings of the training's bar, counted through its epochs."""
    return assemble.through_epochs(last_drawings(assemble.main_group(rows)))


def _remarked(log: RunLog, remarks: Sequence[str]) -> RunLog:
    return replace(log, remarks=(*(f"{log.name}: {remark}" for remark in remarks), *log.remarks))
