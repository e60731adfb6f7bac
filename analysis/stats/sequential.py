"""Intervals of a ratio that hold at every look at a growing number of repeats, all at once.

They are Student's, for repeats that are independent and whose logs are about normal. The 5 % of
error are divided evenly over the contrasts of a study and their looks (Bonferroni), one look at
each number of repeats from `least` to `most`. That costs a little width against group-sequential
bounds, and needs no model of how the looks depend on each other.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, stdtrit

from analysis.stats.intervals import Estimate, Floats, geometric_mean, repeats_ratio

ERROR = 0.05
# A forecast of more repeats than this says nothing.
MOST_NEEDED = 1000
# The chance of better luck than `is_in_reach` takes the rest of a study to have.
LUCK = 0.1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A study's contrasts, its least and most repeats, and the margin of equivalent arms."""

    contrasts: int
    least: int
    most: int
    margin: float

    @property
    def confidence(self) -> float:
        """The confidence of the interval of one contrast at one look."""
        looks = max(1, self.most - self.least + 1)
        return 1 - ERROR / (max(1, self.contrasts) * looks)


def interval_so_far(logs: Floats, planned: Planned) -> Estimate | None:
    """Return a ratio after n repeats, with what the intervals of all looks so far have in common.

    `logs` are those of a quantity of two arms [2, n], or of its ratio in paired repeats [1, n].
    Return None before the first look.
    """
    n = logs.shape[1]
    looks = [_ratio(logs[:, :k], planned.confidence) for k in range(planned.least, n + 1)]
    if not looks:
        return None
    low = max(look.low for look in looks if look.low is not None)
    high = min(look.high for look in looks if look.high is not None)
    # If two looks exclude each other, one of them is wrong, and the newest has the most data.
    return replace(looks[-1], low=low, high=high) if low <= high else looks[-1]


def _ratio(logs: Floats, confidence: float) -> Estimate:
    if len(logs) == 1:
        return geometric_mean(logs[0], confidence=confidence)
    above, below = np.exp(logs)
    return repeats_ratio(above, below, confidence=confidence)


def side(ratio: Estimate, *, margin: float) -> int | None:
    """Return -1 or 1 for a ratio below or above 1, 0 for one within `margin` of it, else None."""
    if ratio.low is None or ratio.high is None:
        return None
    if max(-math.log(ratio.low), math.log(ratio.high)) <= math.log1p(margin):
        return 0
    return 1 if ratio.low > 1 else -1 if ratio.high < 1 else None


def repeats_needed(logs: Floats, planned: Planned) -> int | None:
    """Return the repeats at which an interval would settle a contrast with this scatter.

    The ratio is taken as it is now; half of the studies need more. Return None if a thousand are
    too few. `logs` are as in `interval_so_far`.
    """
    n = np.arange(logs.shape[1] + 1, MOST_NEEDED + 1)
    enough = _settles(logs, n, planned)
    return int(n[enough.argmax()]) if enough.any() else None


def is_in_reach(logs: Floats, planned: Planned) -> bool:
    """Return whether all planned repeats may settle a contrast, the rest being as lucky as `LUCK`.

    The scatter, and the ratio at the end, are taken that far from those of now, to the better side.
    """
    arms, now = logs.shape
    freedom = arms * (now - 1)
    narrower = math.sqrt(freedom / float(chdtri(freedom, LUCK)))
    moved = float(stdtrit(freedom, 1 - LUCK)) * math.sqrt(max(0.0, 1 / now - 1 / planned.most))
    n = np.array([planned.most])
    return any(
        _settles(logs, n, planned, narrower=narrower, moved=by).any() for by in (-moved, moved)
    )


def _settles(
    logs: Floats, n: NDArray[np.int64], planned: Planned, *, narrower: float = 1, moved: float = 0
) -> NDArray[np.bool_]:
    """Return whether `n` repeats settle a contrast, its ratio `moved` by deviations of a repeat."""
    arms = len(logs)
    deviation = math.sqrt(float(logs.var(axis=1, ddof=1).sum()))
    now = abs(float(logs[0].mean() - (logs[1].mean() if arms == 2 else 0.0)))
    shift = max(0.0, now + moved * deviation)
    quantile = stdtrit(arms * (n - 1), (1 + planned.confidence) / 2)
    half = narrower * deviation * quantile / np.sqrt(n)
    return (half < shift) | (half < math.log1p(planned.margin) - shift)
