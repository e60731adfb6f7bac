"""Intervals of a ratio that hold at every look at a growing number of repeats, all at once.

They are Student's, for repeats that are independent and whose logs are about normal. The 5 % of
error are divided evenly over the contrasts of a study and then over their looks (Bonferroni), one
look at each number of repeats from `least` to `most`; late looks get more, since the scatter that
few repeats show is the least certain. From four cells on, the variance of a cell is drawn towards
the variance of all, by as much as they are alike (Smyth 2004, "Linear models and empirical Bayes
methods", section 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, polygamma, psi, stdtrit

from analysis.stats.intervals import Estimate, Floats

ERROR = 0.05
# An arm that scatters more than this share of cells would by chance stands for itself.
UNLIKE = 0.05
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

    def lent_to(self, logs: Floats, *, unlike: float = UNLIKE) -> "CommonVariance":
        """Return it if the logs of an arm may scatter so (a chi-square test), else nothing."""
        own, variance = len(logs) - 1, float(logs.var(ddof=1))
        is_alike = own * variance <= float(chdtri(own, unlike)) * self.value
        return self if is_alike else CommonVariance()

    def moderated(self, variances: Floats, repeats: int) -> Floats:
        """Return the variances of arms after `repeats`, drawn towards this one."""
        own = repeats - 1
        mean = (self.freedom * self.value + own * variances) / (self.freedom + own)
        return np.asarray(mean, dtype=np.float64)


def common_variance(
    cells: Sequence[Floats], *, most_freedom: float = MOST_FREEDOM
) -> CommonVariance:
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
    if excess <= float(polygamma(1, most_freedom / 2)):
        freedom = most_freedom
    else:
        from scipy.optimize import brentq  # takes as long to import as the rest of a command

        freedom = 2 * float(brentq(lambda x: polygamma(1, x) - excess, 1e-6, most_freedom))
    value = math.exp(float(logs.mean()) + float(psi(freedom / 2)) - math.log(freedom / 2))
    return CommonVariance(value=value, freedom=freedom)


def interval_so_far(
    logs: Floats, planned: Planned, *, cells: Sequence[Floats] = ()
) -> Estimate | None:
    """Return a ratio after n repeats, with what the intervals of all looks so far have in common.

    `logs` [n] are the logs of the ratio of two arms in each repeat; `cells` are the logs of all
    cells of the study, whose variances support the variance of one. Return None before the first
    look.
    """
    looks = [_interval(logs[:k], planned, cells) for k in range(planned.least, len(logs) + 1)]
    if not looks:
        return None
    low, high = max(look[0] for look in looks), min(look[1] for look in looks)
    # If two looks exclude each other, one of them is wrong, and the newest has the most data.
    low, high = (low, high) if low <= high else looks[-1]
    return Estimate(value=float(logs.mean()), low=low, high=high).map(math.exp)


def _interval(logs: Floats, planned: Planned, cells: Sequence[Floats]) -> tuple[float, float]:
    n, (deviation, freedom) = len(logs), _scatter(logs, cells)
    quantile = float(stdtrit(freedom, (1 + planned.confidence(n)) / 2))
    half = quantile * deviation / math.sqrt(n)
    return float(logs.mean()) - half, float(logs.mean()) + half


def _scatter(logs: Floats, cells: Sequence[Floats]) -> tuple[float, float]:
    """Return the standard deviation of one repeat of a contrast, and its degrees of freedom."""
    n = len(logs)
    common = common_variance([cell[:n] for cell in cells])
    variance = float(common.moderated(logs.var(ddof=1), n))
    return math.sqrt(variance), common.freedom + n - 1


def side(ratio: Estimate, *, margin: float) -> int | None:
    """Return -1 or 1 for a ratio below or above 1, 0 for one within `margin` of it, else None."""
    if ratio.low is None or ratio.high is None:
        return None
    if max(-math.log(ratio.low), math.log(ratio.high)) <= math.log1p(margin):
        return 0
    return 1 if ratio.low > 1 else -1 if ratio.high < 1 else None


def is_in_reach(logs: Floats, planned: Planned, *, cells: Sequence[Floats] = ()) -> bool:
    """Return whether all planned repeats may settle a contrast, the rest being as lucky as `LUCK`.

    The scatter, and the ratio at the end, are taken that far from today's, to the better side.
    """
    now, most, (deviation, freedom) = len(logs), planned.most, _scatter(logs, cells)
    narrower = math.sqrt(freedom / float(chdtri(freedom, LUCK)))
    moved = float(stdtrit(freedom, 1 - LUCK)) * math.sqrt(max(0.0, 1 / now - 1 / most)) * deviation
    quantile = float(stdtrit(freedom + most - now, (1 + planned.confidence(most)) / 2))
    half = quantile * narrower * deviation / math.sqrt(most)
    shift = abs(float(logs.mean()))
    return half < shift + moved or half < math.log1p(planned.margin) - max(0.0, shift - moved)
