"""Judge a way to read a log by what it explains."""

from dataclasses import dataclass

import numpy as np

from analysis.read.assemble import Placed
from analysis.read.columns import Rows
from analysis.read.epochs import regularity
from analysis.read.text.patterns import Format
from analysis.read.vocabulary import is_evaluation, is_result

FEWEST_STEPS = 3
# The score of a format that no other log's lines can have.
CERTAIN = 20.0
# Steps that rise by a constant less often are not those of a training.
LEAST_REGULAR = 0.3
LEAST_LOSSES = 0.3
ORDERED = 0.98
# Without a loss, numbers in fewer lines than these are not a log's subject.
LEAST_SHARE = 0.03
_AXES = {"step": 0.5, "sample": 0.3, "epoch": 0.0, "unit": -3.0}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The score of rows, 0 if they are not those of a training, and the last step on their axis."""

    score: float
    rows: int
    axis: str
    last: int


def judge(known: Format, placed: Placed, *, matched: int, numbered: int) -> Judged:
    """Score the placed rows of a format: losses, regular steps, totals, lines explained."""
    rows, score = placed.rows, 0.0
    if len(rows):
        score = _score(rows, placed.axis, share=min(matched / max(numbered, 1), 1.0))
    if known.is_certain and len(rows):
        score = CERTAIN
    if score and known.name != "key: value":
        score += 0.3
    last = int(rows["step"].max()) if len(rows) else 0
    return Judged(score=score, rows=len(rows), axis=placed.axis, last=last)


def _score(rows: Rows, axis: str, *, share: float) -> float:
    step = rows["step"]
    distinct = len(np.unique(step))
    losses = len(np.unique(step[~np.isnan(rows["loss"])])) / max(distinct, 1)
    has_loss = losses >= LEAST_LOSSES
    is_evaluated = any(is_evaluation(name) for name in rows.columns)
    has_total = any((~np.isnan(rows[name])).any() for name in ("of", "group", "epochs"))
    is_measured = any(is_result(name) for name in rows.columns) or any(
        name in rows for name in ("images_per_s", "tokens_per_s", "steps_per_s", "step_s", "bar_s",
                                  "duration_s", "elapsed_s", "train_s", "lr")
    )  # fmt: skip
    # One line may be the first of a training; many of one step are a count that stands still.
    is_first = has_loss and (len(rows) == 1 or axis == "epoch")
    fewest = 1 if is_first else 2 if has_loss else FEWEST_STEPS
    if distinct < fewest:
        return 0.0
    if not (has_loss or is_evaluated or has_total or is_measured):
        return 0.0
    if not (has_loss or is_evaluated) and share < LEAST_SHARE:
        return 0.0
    regular = regularity(step)
    # Lines that are printed now and then are of a training, too, if their steps never fall.
    is_ordered = has_loss and distinct >= 10 and (np.diff(step) >= 0).mean() > ORDERED
    if regular < LEAST_REGULAR and distinct >= FEWEST_STEPS and not is_ordered:
        return 0.0
    reached = has_total and float(np.nanmax(step)) >= float(np.nanmax(rows["of"], initial=np.inf))
    score = 4.0 * has_loss * losses + 2.0 * regular + 2.0 * share + _AXES.get(axis, 0.0)
    score += 0.3 * min(np.log10(distinct), 4.0) + 0.2 * reached + 0.2 * is_evaluated
    return score
