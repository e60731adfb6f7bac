"""Read a text log: the rows of the format that is trusted most become runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.read import assemble
from analysis.read.assemble import Placed
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
    placed = on_one_axis(rows) if known is MLPERF else _placed(known, rows, found)
    if not len(placed.rows):
        return []
    logs = assemble.assemble(placed, path=path, name=name, kind=known.name)
    if known is MLPERF and len(logs) == 1:
        events = (*events_of(found[known.name]), *logs[0].events)
        evaluations = placed.evaluations
        logs = [replace(logs[0], facts=facts_of(path), events=events, evaluations=evaluations)]
    remarks += placed.remarks
    if placed.axis != "step":
        what = "units that the log does not name" if placed.axis == "unit" else f"{placed.axis}s"
        remarks.append(f"the axis counts {what}")
    return [
        replace(log, remarks=(*(f"{log.name}: {remark}" for remark in remarks), *log.remarks))
        for log in logs
    ]


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


def _placed(known: Format, rows: Rows, found: Mapping[str, Rows]) -> Placed:
    """Return rows with a step: their own, a bar's, else epochs, images or a count of losses."""
    if "record" in rows:
        number = np.cumsum(~np.isnan(rows["record"])) - 1
        rows = rows.take(number >= 0).merged(number[number >= 0])
    if known is lines.TRAINER:
        return _placed_by_bars(rows, found.get(lines.BARS.name))
    if known.is_redrawn:
        rows = _training_bar(rows)
    for column, axis in (("step", "step"), ("images", "sample"), ("epoch", "epoch")):
        if column in rows:
            rows = rows.take(~np.isnan(rows[column]) & (rows[column] >= 0))
            rows = rows.replace(step=np.ceil(rows[column]))
            if axis == "step" and "epoch" in rows and known.epochs_from is None:
                rows = assemble.through_epochs(rows)
            return Placed(rows=rows, axis=axis)
    return Placed(rows=Rows({}))


def _placed_by_bars(rows: Rows, bars: Rows | None) -> Placed:
    """Return the Trainer's rows with the step and clock of the bar before each, else counted."""
    # The last row has the mean loss of the whole training.
    rows = rows.take(~np.isnan(rows["loss"]) & np.isnan(rows["train_runtime"]))
    if "step" in rows and (rows["step"] > 0).any():
        return Placed(rows=rows)
    if bars is None:
        remark = "the log names no steps: losses are counted instead"
        return Placed(rows=rows.replace(step=np.arange(1.0, len(rows) + 1)), remarks=[remark])
    bars = _training_bar(bars)
    before = np.maximum(np.searchsorted(bars["place"], rows["place"]) - 1, 0)
    rows = rows.replace(step=bars["step"][before], bar_s=bars["bar_s"][before])
    return Placed(rows=rows, remarks=["steps and clock are those of the bar before each loss"])


def _training_bar(rows: Rows) -> Rows:
    """Return the last drawings of the training's bar, counted through its epochs."""
    return assemble.through_epochs(last_drawings(assemble.main_group(rows)))
