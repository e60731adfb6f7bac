"""The jackknife: intervals of functions of sums, such as ratios of averages."""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.summary import MIN_VALUES, effective_number


def jackknife(columns: Floats, of: Callable[[Floats], Floats]) -> Estimate:
    """Return a function of the sums of `columns` [n, m], with Student's jackknife interval.

    `of` maps sums [..., m] to values [...] (Efron & Tibshirani 1993, chapter 11). Successive rows
    may be autocorrelated: they count as as many as the influence of each on the value tells.
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
    effective = effective_number(influence)
    # As of a mean (`mean_of`): few independent values determine it, and scatter less about it.
    variance = (n - 1) * float(influence @ influence) / max(1 - 1 / effective, 0.5)
    error = math.sqrt(variance / effective)
    half = float(stdtrit(effective - 1, 0.975) * error)
    return Estimate(value=value, low=value - half, high=value + half)
