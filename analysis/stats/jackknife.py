"""The jackknife: intervals of functions of sums, such as ratios of averages."""

from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.summary import MIN_VALUES


def jackknife(columns: Floats, of: Callable[[Floats], Floats]) -> Estimate:
    """Return a function of the sums of `columns` [n, m], with Student's jackknife interval.

    `of` maps sums [..., m] to values [...] (Efron & Tibshirani 1993, chapter 11).
    """
    n, whole = len(columns), columns.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(of(whole))
        if n < MIN_VALUES or not np.isfinite(value):
            return Estimate(value=value)
        without = of(whole - columns)
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    if not np.isfinite(error):
        return Estimate(value=value)
    half = float(stdtrit(n - 1, 0.975) * error)
    return Estimate(value=value, low=value - half, high=value + half)
