"""Place the rows of a candidate on an axis, with what stands in the lines beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.read.assemble import Placed, main_group, one_rank
from analysis.read.columns import Rows, join
from analysis.read.epochs import regularity, through_epochs
from analysis.read.formats import lines
from analysis.read.formats.mlperf import MLPERF, on_one_axis
from analysis.read.text.infer import Inferred
from analysis.read.text.judge import LEAST_REGULAR
from analysis.read.text.patterns import Format
from analysis.read.text.scan import Found, last_drawings
from analysis.read.vocabulary import is_evaluation

_CLOCKS = frozenset(
    ["step_s", "steps_per_s", "duration_s", "elapsed_s", "train_s", "day_s", "time", "bar_s"]
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A format, and those of lines beside its own.

    `sides` are other numbers of a record, and evaluations; `stages` are lines before or after all
    lines of the format, of another stage of the training.
    """

    key: str
    format: Format
    sides: tuple[Inferred, ...] = ()
    stages: tuple[Inferred, ...] = ()
    inferred: Inferred | None = None
    heads: frozenset[str] = frozenset(["rank", "time"])

    @property
    def formats(self) -> list[tuple[str, Format]]:
        """The formats to read, by key."""
        bars = [(lines.BARS.name, lines.BARS)] if self.format is lines.TRAINER else []
        beside = [(one.key, one.format) for one in (*self.sides, *self.stages)]
        return [(self.key, self.format), *bars, *beside]


def placed_rows(candidate: Candidate, found: Found) -> Placed | None:
    """Return the rows of a candidate with a step: their own, a bar's, else epochs or images."""
    rows, known = found.rows(candidate.key), candidate.format
    if rows is None:
        return None
    rows, remarks = one_rank(rows)
    if known is MLPERF:
        placed = on_one_axis(rows)
        return replace(placed, remarks=[*remarks, *placed.remarks])
    if "record" in rows:
        number = np.cumsum(~np.isnan(rows["record"])) - 1
        rows = rows.take(number >= 0).merged(number[number >= 0])
    if known is lines.TRAINER:
        return _placed_by_bars(rows, found.rows(lines.BARS.name), remarks)
    if known.is_redrawn:
        rows = last_drawings(main_group(rows))
    elif known is lines.KERAS:
        rows = rows.take(rows["within"] == rows["group"])
    if known.groups:
        rows = _evaluations_by_total(rows)
    for one in candidate.stages:
        stage = found.rows(one.key)
        if stage is not None:
            rows = join([rows, stage])
            rows = rows.take(np.argsort(rows["place"], kind="stable"))
    rows, axis = _on_axis(rows, known)
    if axis is None:
        return None
    is_epochwise = axis != "epoch" and "epoch" in rows
    if is_epochwise or "bar_s" in rows:
        rows, remark = through_epochs(rows)
        remarks += [remark] if remark else []
    if axis == "sample" and candidate.inferred:
        # Those of a step, which is not the axis.
        rows = Rows({n: c for n, c in rows.columns.items() if n not in ("step_s", "steps_per_s")})
    rows = _with_sides(rows, candidate.sides, found, axis=axis)
    return Placed(
        rows=rows,
        axis=axis,
        remarks=remarks,
        uncertain={**_uncertain(rows, axis, known), **known.uncertain},
        unit_is_known=_unit_is_known(candidate),
    )


def _on_axis(rows: Rows, known: Format) -> tuple[Rows, str | None]:
    for column, axis in (("step", known.axis), ("images", "sample"), ("epoch", "epoch")):
        if column in rows:
            rows = rows.take(~np.isnan(rows[column]) & (rows[column] >= 0))
            rows = rows.take(rows[column] < 2**53)
            if axis == "epoch" and len(rows) and (np.mod(rows["epoch"], 1) > 0).mean() > 0.5:
                # Shares of epochs: each line is a count of its own.
                return rows.replace(step=np.arange(1.0, len(rows) + 1)), "unit"
            if axis == "sample":
                rows = rows.replace(images=rows[column])
            return rows.replace(step=np.ceil(rows[column])), axis
    return rows, None


def _evaluations_by_total(rows: Rows) -> Rows:
    """Return rows of which those with another total, between those of the training, evaluate.

    `step 614/614 - loss` of an epoch, then `step 89/89 - loss` of its validation.
    """
    of = rows["of"]
    known = np.flatnonzero(~np.isnan(of))
    totals, counts = np.unique(of[known], return_counts=True)
    if not 2 <= len(totals) <= 3 or (np.diff(of[known]) != 0).sum() < len(totals) + 1:
        return rows
    # Of as many lines each, the longer count is the training's.
    main = totals[::-1][counts[::-1].argmax()]
    other = ~np.isnan(of) & (of != main)
    loss = rows["loss"]
    beside = rows.replace(
        loss=np.where(other, np.nan, loss), val_loss=np.where(other, loss, rows["val_loss"])
    )
    # An evaluation stands at the step before it.
    last = np.maximum.accumulate(np.where(other, -1, np.arange(len(rows))))
    at = np.where(other & (last >= 0), last, np.arange(len(rows)))
    kept = ~other | (last >= 0)
    placed = {name: rows[name][at] for name in ("step", "epoch", "of") if name in rows}
    return beside.replace(**placed).take(kept)


def _unit_is_known(candidate: Candidate) -> bool:
    """Whether a printed time has its unit or the form of a clock."""
    if candidate.inferred is None:
        return True
    columns = dict(candidate.format.groups.values())
    fields = candidate.inferred.kind.fields
    told = [one for one in fields if one.unit.strip() or one.form == "clock"]
    return "duration_s" not in columns or any(
        "s" in one.unit or one.form == "clock" for one in told
    )


def _uncertain(rows: Rows, axis: str, known: Format) -> dict[str, str]:
    """Return why tokens per second or intervals with an evaluation each are no rate of steps."""
    is_rate_of_tokens = "tokens_per_s" in rows and _CLOCKS.isdisjoint(rows.columns)
    if is_rate_of_tokens and known.name == "key: value":
        return {"printed": "the log does not say whether its tokens/s are of one device or of all"}
    if axis != "step" or "evaluated" not in rows:
        return {}
    counts = np.diff(rows["evaluated"][~np.isnan(rows["loss"])])
    if len(counts) and (counts > 0).mean() > 0.9 and "time" in rows:
        return {"time": "every interval holds an evaluation: training alone is not timed"}
    return {}


def _with_sides(rows: Rows, sides: Sequence[Inferred], found: Found, *, axis: str) -> Rows:
    """Return rows with those of the lines beside them, each at the step that it belongs to."""
    parts, of = [rows], [np.arange(len(rows))]
    has_loss = "loss" in rows
    marks = np.zeros(len(rows))
    for side in sides:
        other = found.rows(side.key)
        if other is None or not len(rows):
            continue
        kept = [
            name for name in other.columns
            if name in ("line", "place", "end", "time") or is_evaluation(name)
            or (name == "loss" and "bar_s" in rows and not has_loss)
            or not ((side.axis in ("step", "epoch") and side.has_axis) or name in rows.columns
                    or name in ("epoch", "step", "of"))
        ]  # fmt: skip
        place = np.searchsorted(rows["place"], other["place"]) - 1
        if not has_loss and len(other) and other["place"][0] < rows["place"][0]:
            place = place + 1
        inside = (place >= 0) & (place < len(rows))
        at = np.clip(place, 0, len(rows) - 1)
        if side.has_evaluation:
            marks += np.bincount(np.clip(place + 1, 0, len(rows)), minlength=len(rows) + 1)[:-1]
        step = rows["step"][at]
        columns = {name: other[name] for name in kept} | {"step": step}
        columns |= {n: rows[n][at] for n in ("place", "end", "line") if n not in columns}
        parts.append(Rows(columns).take(inside))
        of.append(at[inside])
    if marks.any() and axis == "step":
        parts[0] = rows.replace(evaluated=np.cumsum(marks))
    whole = join(parts)
    if "loss" not in whole and len(rows):
        # Nothing tells the rows of a training apart from those beside: each record is one.
        return whole.merged(np.concatenate(of))
    order = np.argsort(whole["place"], kind="stable")
    return whole.take(order)


def _placed_by_bars(rows: Rows, bars: Rows | None, remarks: list[str]) -> Placed:
    """Return the Trainer's rows with the step and clock of the bar before each, else counted."""
    # The last row has the mean loss of the whole training.
    rows = rows.take(np.isnan(rows["train_runtime"]))
    rows = rows.take(~np.all([np.isnan(rows[n]) for n in rows.columns if n == "loss" or
                              is_evaluation(n)] or [np.ones(len(rows))], axis=0))  # fmt: skip
    if "step" in rows and (rows["step"] > 0).any():
        return Placed(rows=rows.take(rows["step"] >= 0), remarks=remarks)
    if bars is None:
        count = np.maximum(np.cumsum(~np.isnan(rows["loss"])), 1.0)
        remarks = [*remarks, "the log names no steps: losses are counted instead"]
        return Placed(rows=rows.replace(step=count), axis="unit", remarks=remarks)
    bars, _ = through_epochs(last_drawings(main_group(bars)))
    before = np.maximum(np.searchsorted(bars["place"], rows["place"]) - 1, 0)
    step, bar_s = bars["step"][before], bars["bar_s"][before]
    remark = "steps and clock are those of the bar before each loss"
    lost = np.flatnonzero(~np.isnan(rows["loss"]))
    total = float(np.nanmax(bars["group"]))
    each = round(total / max(len(lost), 1))
    if regularity(step[lost]) < LEAST_REGULAR and abs(each * len(lost) - total) < max(each, 1):
        # The two were written apart: every loss stands for as many steps.
        step = each * np.maximum(np.cumsum(~np.isnan(rows["loss"])), 1.0)
        order = np.argsort(bars["step"], kind="stable")
        bar_s = np.interp(step, bars["step"][order], bars["bar_s"][order])
        remark = f"each loss is that of {each} steps, of the {total:g} of the bar"
    rows = join([rows.replace(step=step, bar_s=bar_s), bars])
    rows = rows.take(np.argsort(rows["place"], kind="stable"))
    remarks = [*remarks, remark]
    return Placed(rows=rows, remarks=remarks)
