"""Intervals of a ratio that hold at every look at a growing number of repeats, all at once.

They are Student's, for repeats that are independent and whose logs are about normal. The 5 % of
error are divided evenly over the contrasts of a study and then over their looks (Bonferroni), one
look at each number of repeats from `least` to `most`; late looks get more, since the scatter that
few repeats show is the least certain. From four cells on, the variance of a cell is drawn towards
that of all cells, by as much as they are alike (Smyth 2004, "Linear models and empirical Bayes
methods", section 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, polygamma, psi, stdtrit

from analysis.stats.intervals import Estimate, Floats

ERROR = 0.05
# A forecast of more repeats than this says nothing.
MOST_NEEDED = 1000
# The chance of better luck than `is_in_reach` takes the rest of a study to have.
LUCK = 0.1
# The cells of a study count at most as much as so many repeats of the cell itself, so that a cell
# which scatters more than all others is not taken for one of them.
MOST_FREEDOM = 5.0
FEWEST_CELLS = 4


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A study's contrasts, its least and most repeats, and the margin of equivalent arms."""

    contrasts: int
    least: int
    most: int
    margin: float

    def confidence(self, repeats: int) -> float:
        """Return the confidence of the interval of one contrast at the look at `repeats`."""
        looks = max(1, self.most - self.least + 1)
        look = min(max(1, repeats - self.least + 1), looks)
        return 1 - ERROR / max(1, self.contrasts) * look / (looks * (looks + 1) / 2)


@dataclass(frozen=True, kw_only=True)
class CommonVariance:
    """The variance of a cell by all cells of its study, and the degrees of freedom of that."""

    value: float = 0.0
    freedom: float = 0.0

    def moderated(self, variances: Floats, repeats: int) -> Floats:
        """Return the variances of arms after `repeats`, drawn towards this one."""
        own = repeats - 1
        mean = (self.freedom * self.value + own * variances) / (self.freedom + own)
        return np.asarray(mean, dtype=np.float64)


def common_variance(cells: Sequence[Floats]) -> CommonVariance:
    """Estimate the variance of a cell from the logs of all cells, each of shape [repeats].

    Of fewer than four cells with two repeats each, and of cells without any scatter, the result has
    no degrees of freedom: then every cell stands for itself.
    """
    scatter = [cell for cell in cells if len(cell) > 1]
    variances = np.array([cell.var(ddof=1) for cell in scatter])
    if len(scatter) < FEWEST_CELLS or not (variances > 0).all():
        return CommonVariance()
    half = np.array([(len(cell) - 1) / 2 for cell in scatter])
    logs = np.log(variances) - psi(half) + np.log(half)
    # What the logs of the variances differ by, beyond what so few repeats explain.
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= float(polygamma(1, MOST_FREEDOM / 2)):
        freedom = MOST_FREEDOM
    else:
        from scipy.optimize import brentq  # takes as long to import as the rest of a command

        freedom = 2 * float(brentq(lambda x: polygamma(1, x) - excess, 1e-6, MOST_FREEDOM))
    value = math.exp(float(logs.mean()) + float(psi(freedom / 2)) - math.log(freedom / 2))
    return CommonVariance(value=value, freedom=freedom)


def interval_so_far(
    logs: Floats, planned: Planned, *, cells: Sequence[Floats] = ()
) -> Estimate | None:
    """Return a ratio after n repeats, with what the intervals of all looks so far have in common.

    `logs` are those of a quantity of two arms [2, n], or of its ratio in paired repeats [1, n];
    `cells` are those of all cells of the study, each of shape [repeats], whose variances support
    those of two arms. Return None before the first look.
    """
    n = logs.shape[1]
    looks = [_interval(logs[:, :k], planned, cells) for k in range(planned.least, n + 1)]
    if not looks:
        return None
    low, high = max(look[0] for look in looks), min(look[1] for look in looks)
    # If two looks exclude each other, one of them is wrong, and the newest has the most data.
    low, high = (low, high) if low <= high else looks[-1]
    return Estimate(value=_difference(logs), low=low, high=high).map(math.exp)


def _interval(logs: Floats, planned: Planned, cells: Sequence[Floats]) -> tuple[float, float]:
    n = logs.shape[1]
    scatter = _Scatter.of(logs, cells)
    quantile = float(stdtrit(scatter.freedom(n), (1 + planned.confidence(n)) / 2))
    half = quantile * scatter.deviation / math.sqrt(n)
    return _difference(logs) - half, _difference(logs) + half


def _difference(logs: Floats) -> float:
    return float(logs[0].mean() - (logs[1].mean() if len(logs) == 2 else 0.0))


@dataclass(frozen=True, kw_only=True)
class _Scatter:
    """The scatter of one repeat of a contrast, and how well it is known.

    `arms` is the number of arms with like variances that these two count as (Satterthwaite).
    """

    deviation: float
    arms: float
    common: float

    @classmethod
    def of(cls, logs: Floats, cells: Sequence[Floats]) -> "_Scatter":
        n = logs.shape[1]
        known = common_variance([cell[:n] for cell in cells])
        variances = known.moderated(logs.var(axis=1, ddof=1), n)
        total, squares = float(variances.sum()), float((variances**2).sum())
        arms = total**2 / squares if squares > 0 else float(len(logs))
        return cls(deviation=math.sqrt(total), arms=arms, common=known.freedom)

    def freedom(self, repeats: int | NDArray[np.int64]) -> Floats:
        """Return the degrees of freedom after so many repeats."""
        return np.asarray(self.arms * (self.common + repeats - 1), dtype=np.float64)


def side(ratio: Estimate, *, margin: float) -> int | None:
    """Return -1 or 1 for a ratio below or above 1, 0 for one within `margin` of it, else None."""
    if ratio.low is None or ratio.high is None:
        return None
    if max(-math.log(ratio.low), math.log(ratio.high)) <= math.log1p(margin):
        return 0
    return 1 if ratio.low > 1 else -1 if ratio.high < 1 else None


def repeats_needed(logs: Floats, planned: Planned, *, cells: Sequence[Floats] = ()) -> int | None:
    """Return the repeats at which an interval would settle a contrast with this scatter.

    The ratio is taken as it is now; half of the studies need more. Return None if a thousand are
    too few. `logs` and `cells` are as in `interval_so_far`.
    """
    n = np.arange(logs.shape[1] + 1, MOST_NEEDED + 1)
    enough = _settles(logs, n, planned, _Scatter.of(logs, cells))
    return int(n[enough.argmax()]) if enough.any() else None


def is_in_reach(logs: Floats, planned: Planned, *, cells: Sequence[Floats] = ()) -> bool:
    """Return whether all planned repeats may settle a contrast, the rest being as lucky as `LUCK`.

    The scatter, and the ratio at the end, are taken that far from those of now, to the better side.
    """
    now = logs.shape[1]
    scatter = _Scatter.of(logs, cells)
    freedom = float(scatter.freedom(now))
    narrower = math.sqrt(freedom / float(chdtri(freedom, LUCK)))
    moved = float(stdtrit(freedom, 1 - LUCK)) * math.sqrt(max(0.0, 1 / now - 1 / planned.most))
    n = np.array([planned.most])
    lucky = replace(scatter, deviation=narrower * scatter.deviation)
    return any(
        _settles(logs, n, planned, lucky, moved=by * scatter.deviation).any()
        for by in (-moved, moved)
    )


def _settles(
    logs: Floats, n: NDArray[np.int64], planned: Planned, scatter: _Scatter, *, moved: float = 0.0
) -> NDArray[np.bool_]:
    """Return whether `n` repeats settle a contrast whose ratio has `moved` by then."""
    shift = max(0.0, abs(_difference(logs)) + moved)
    confidence = np.array([planned.confidence(int(repeats)) for repeats in n])
    half = stdtrit(scatter.freedom(n), (1 + confidence) / 2) * scatter.deviation / np.sqrt(n)
    return (half < shift) | (half < math.log1p(planned.margin) - shift)
