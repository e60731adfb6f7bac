"""The jackknife: intervals of functions of sums, such as ratios of averages."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.mean import MIN_VALUES, effective_number

# Fewer rows do not show their autocorrelation, and count as independent.
FEWEST_CORRELATED = 30


def jackknife(columns: Floats, of: Callable[[Floats], Floats]) -> Estimate:
    """Return a function of the sums of `columns` [n, m], with Student's jackknife interval.

    `of` maps sums [..., m] to values [...] (Efron & Tibshirani 1993, chapter 11). Successive rows
    may be autocorrelated: the influence of each on the value tells how many they count as.
    """
    n, whole = len(columns), columns.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(of(whole))
        if n < MIN_VALUES or not np.isfinite(value):
            return Estimate(value=value)
        without = of(whole - columns)
    influence = without - without.mean()
    if not np.isfinite(influence).all():
        return Estimate(value=value)
    error, effective = math.sqrt((n - 1) / n * float(influence @ influence)), float(n)
    if n >= FEWEST_CORRELATED:
        # As of a mean (`mean_of`): few independent values determine it, and scatter less about it.
        effective = effective_number(influence)
        error *= math.sqrt(n / effective / max(1 - 1 / effective, 0.5))
    half = float(stdtrit(effective - 1, 0.975) * error)
    return Estimate(value=value, low=value - half, high=value + half)
