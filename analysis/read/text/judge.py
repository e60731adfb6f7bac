"""Judge a way to read a log by what it explains."""

from dataclasses import dataclass

import numpy as np

from analysis.read.assemble import Placed
from analysis.read.columns import Rows, distinct
from analysis.read.epochs import regularity
from analysis.read.text.candidates import Candidate

FEWEST_STEPS, FEWEST_WITHOUT_LOSS = 3, 5
# Steps that rise by a constant less often are not those of a training.
LEAST_REGULAR = 0.3
MOST_FALLS = 0.02
# A loss in the line of its step is the whole; one in a line beside may be a part.
BESIDE = 2.1
_OTHER_AXES = {"sample": 0.3, "epoch": 0.0, "unit": -3.0}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A candidate with its rows and its score, 0 if they are not those of a training."""

    candidate: Candidate
    placed: Placed
    score: float

    @property
    def last(self) -> int:
        """The last step on the axis."""
        return int(self.placed.rows["step"].max())


def judge(candidate: Candidate, placed: Placed, *, numbered: int) -> Judged:
    """Score the placed rows of a candidate: losses, regular steps, totals, lines explained."""
    score = 0.0
    if len(placed.rows):
        matched = candidate.kind.count + sum(one.kind.count for one in candidate.sides)
        share = min(matched / max(numbered, 1), 1.0)
        score = _score(placed.rows, placed.axis, share=share, is_bar=candidate.is_bar)
    if score and not candidate.has_loss and any(one.has_loss for one in candidate.sides):
        score = max(score - BESIDE, 0.1)
    return Judged(candidate=candidate, placed=placed, score=score)


def _score(rows: Rows, axis: str, *, share: float, is_bar: bool) -> float:
    step = rows["step"]
    steps = distinct(step)
    losses = distinct(step[~np.isnan(rows["loss"])]) / max(steps, 1)
    if is_bar and losses:
        # Drawings between two losses are of the training, too.
        losses = 1.0
    has_loss = losses > 0
    # One line may be the first of a training; many of one step are a count that stands still.
    is_first = has_loss and (len(rows) == 1 or axis == "epoch")
    fewest = 1 if is_first else 2 if has_loss else FEWEST_WITHOUT_LOSS
    regular = regularity(step)
    falls = float((np.diff(step) < 0).mean()) if len(step) > 1 else 0.0
    is_irregular = regular < LEAST_REGULAR and steps >= FEWEST_STEPS and falls > MOST_FALLS
    if steps < fewest or is_irregular:
        return 0.0
    size = 0.3 * min(np.log10(steps), 4.0)
    return 4.0 * has_loss * losses + 2.0 * regular + 2.0 * share + size + _OTHER_AXES.get(axis, 0.5)
