"""Place the rows of a candidate on an axis, with what stands in the lines beside them."""

from collections.abc import Sequence

import numpy as np

from analysis.read.assemble import Placed, main_group, one_rank
from analysis.read.columns import Rows, distinct, filled, join
from analysis.read.epochs import on_axis
from analysis.read.text.candidates import Candidate
from analysis.read.text.fields import PAUSE
from analysis.read.text.kinds import Text, is_of_training
from analysis.read.vocabulary import is_evaluation
from analysis.stats.intervals import Floats

# Of the losses beside bars this share stands at steps of their own.
LEAST_APART = 0.9
FEWEST_EPOCHS = 3
# Bars of another training have at least this share of its steps.
SHORTER = 0.1
_CLOCKS = frozenset(["step_s", "steps_per_s", "elapsed_s", "train_s", "day_s", "time", "bar_s"])


def placed_rows(candidate: Candidate, text: Text) -> Placed | None:
    """Return the rows of a candidate on the axis that they have, None if they have none."""
    epochs = text.epochs
    rows, remarks = one_rank(_with_epochs(candidate.rows, epochs))
    if candidate.has_step and _are_epochs(rows["step"], epochs["epoch"]):
        rows = Rows(
            {("epoch" if n == "step" else n): c for n, c in rows.columns.items() if n != "epoch"}
        )
    doubts: dict[str, str] = {}
    if candidate.is_bar:
        if _are_two_bars(rows):
            doubts["loss"] = "may be of two processes that draw at once: each step has two losses"
        # A bar that went past its own total has the last known one.
        drawn = rows.replace(of=np.nan_to_num(filled(rows["of"])))
        rows = main_group(drawn)
        if _goes_on(drawn, rows):
            follow = "bars of other steps follow: they may be another run"
            if candidate.kind.head != "bar ":
                doubts |= dict.fromkeys(("step", "loss"), follow)
            else:
                remarks = [*remarks, follow]
        rows = last_drawings(rows)
    found = on_axis(rows, step_axis=candidate.axis if candidate.has_step else "step")
    if found is None:
        return None
    rows, axis, uncertain = found
    if not candidate.has_loss:
        for side in candidate.sides:
            uncertain |= {name: why for name, why in side.uncertain.items() if name == "loss"}
    uncertain |= doubts
    beside = [(one, _with_epochs(one.rows, epochs)) for one in candidate.sides]
    rows = _with_sides(rows, beside)
    if candidate.is_bar and "loss" in rows:
        rows = _with_pauses(rows, text)
    is_rate_of_tokens = "tokens_per_s" in rows and _CLOCKS.isdisjoint(rows.columns)
    if is_rate_of_tokens and not candidate.is_bar:
        of_what = "the log does not say whether its tokens/s are of one device or of all"
        uncertain["printed"] = of_what
    return Placed(
        rows=rows,
        axis=axis,
        remarks=[*remarks, *candidate.kind.remarks],
        loss_name=candidate.loss_name,
        uncertain={**uncertain, **candidate.uncertain},
        without_unit=candidate.without_unit.union(
            *(one.without_unit - candidate.rows.columns.keys() for one in candidate.sides)
        ),
    )


def _are_epochs(step: Floats, epoch: Floats) -> bool:
    """Whether a count without a name of its own has the values of the epochs that others name."""
    named = np.unique(epoch)
    return len(named) >= FEWEST_EPOCHS and len(step) == len(named) and bool((step == named).all())


def _with_epochs(rows: Rows, epochs: Rows) -> Rows:
    """Return rows with the epoch that was last named before each one that names none.

    An epoch is named after its rows if the step first falls at the first line that names one.
    """
    if not len(epochs):
        return rows
    number = epochs["epoch"]
    at = np.searchsorted(epochs["place"], rows["place"], side="right") - 1
    fall = np.flatnonzero(np.diff(rows["step"]) < 0)[:1]
    if len(fall) and at[fall[0]] < 0 <= at[fall[0] + 1]:
        at, number = at + 1, np.append(number, number[-1] + 1)
    named = np.where(at >= 0, number[np.maximum(at, 0)], np.nan)
    own = rows["epoch"]
    return rows.replace(epoch=np.where(np.isnan(own), named, own))


def _with_pauses(rows: Rows, text: Text) -> Rows:
    """Return the rows of a bar with one for each pause that the log names between two of them."""
    others = [
        kind.rows["place"] for kind in text.kinds
        if not is_of_training(kind) and PAUSE.search(kind.sample)
    ]  # fmt: skip
    place = np.concatenate([np.array(text.pauses, dtype=np.float64), *others])
    at = np.searchsorted(rows["place"], place) - 1
    at, first = np.unique(at, return_index=True)
    kept = at >= 0
    at, place = at[kept], place[first[kept]]
    pauses = Rows({"place": place, "step": rows["step"][at], "pause": np.ones(len(at))})
    whole = join([rows, pauses])
    return whole.take(np.argsort(whole["place"], kind="stable"))


def _goes_on(drawn: Rows, main: Rows) -> bool:
    """Whether bars follow the training's that are not much shorter, of a total not drawn before."""
    is_later = drawn["place"] > main["place"].max(initial=0)
    of, before = drawn["of"][is_later], drawn["of"][~is_later]
    return bool((~np.isin(of, before) & (of >= SHORTER * main["of"].max(initial=0))).any())


def _are_two_bars(rows: Rows) -> bool:
    """Whether most steps are drawn twice, the first time not with the loss of the step before.

    tqdm draws the new step with the old loss, and again with its own.
    """
    step, loss = rows["step"], rows["loss"]
    again = np.flatnonzero((np.diff(step) == 0) & (np.abs(np.diff(loss)) > 0))
    again = again[again > 0]
    is_old = loss[again] == loss[again - 1]
    return bool(2 * len(again) > distinct(step) and is_old.mean() < 0.5)


def last_drawings(rows: Rows) -> Rows:
    """Return the last drawing of each step of a bar, whose loss is that step's."""
    differs = (np.diff(rows["step"]) != 0) | (np.diff(rows["of"]) != 0)
    differs |= np.diff(rows["epoch"]) > 0
    differs |= np.diff(rows["bar_s"]) < 0
    return rows.merged(np.append(0, np.cumsum(differs))[: len(rows)])


def _with_sides(rows: Rows, sides: Sequence[tuple[Candidate, Rows]]) -> Rows:
    """Return rows with those of the lines beside them, each at the step that it belongs to."""
    parts, of = [rows], [np.arange(len(rows))]
    has_loss = "loss" in rows
    # Some drawings of a bar may have a record glued to them.
    has_few = "bar_s" in rows and 2 * np.isfinite(rows["loss"]).sum() < len(rows)
    for side, other in sides:
        if not len(rows):
            continue
        kept = [
            name for name in other.columns
            if name in ("line", "place", "time") or is_evaluation(name)
            or (name == "loss" and has_few)
            or not ((side.axis not in ("sample", "unit") and side.has_axis) or name in rows.columns
                    or name in ("epoch", "step", "of", "rank"))
        ]  # fmt: skip
        place = np.searchsorted(rows["place"], other["place"]) - 1
        is_apart = distinct(place) < LEAST_APART * len(place)
        if "bar_s" in rows and is_apart and not side.has_evaluation:
            # Written apart from the bars, as the two streams of a program are: if they
            # name shares of epochs, the last loss is of the end of a bar that has ended.
            names_shares = (np.mod(other["epoch"], 1) > 0).any()
            if "loss" in other and names_shares and rows["step"][-1] == rows["of"][-1]:
                other, place = other.take(np.array([-1])), np.array([len(rows) - 1])
                other = other.replace(place=rows["place"][-1:])
            else:
                kept = [name for name in kept if name != "loss"]
        if not has_loss and len(other) and other["place"][0] < rows["place"][0]:
            place = place + 1
        inside = (place >= 0) & (place < len(rows))
        at = np.clip(place, 0, len(rows) - 1)
        columns = {name: other[name] for name in kept} | {"step": rows["step"][at]}
        parts.append(Rows(columns).take(inside))
        of.append(at[inside])
    whole = join(parts)
    if "loss" not in whole and len(rows):
        # Nothing tells the rows of a training apart from those beside: each record is one.
        return whole.merged(np.concatenate(of))
    return whole.take(np.argsort(whole["place"], kind="stable"))
