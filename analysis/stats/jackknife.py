"""The jackknife: intervals of functions of sums, such as ratios of averages."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.mean import MIN_VALUES, Mean, mean_of

# Fewer rows do not show their autocorrelation, and count as independent.
FEWEST_CORRELATED = 30


def jackknife(columns: Floats, of: Callable[[Floats], Floats]) -> Estimate:
    """Return a function of the sums of `columns` [n, m], with Student's jackknife interval.

    `of` maps sums [..., m] to values [...] (Efron & Tibshirani 1993, chapter 11). What each row
    adds to the value is a series, whose mean has the error of the value: successive rows may be
    autocorrelated.
    """
    n, whole = len(columns), columns.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(of(whole))
        if n < MIN_VALUES or not np.isfinite(value):
            return Estimate(value=value)
        added = n * value - (n - 1) * of(whole - columns)
    if not np.isfinite(added).all():
        return Estimate(value=value)
    error = float(added.std(ddof=1)) / math.sqrt(n)
    alone = Mean(value=value, error=error, freedom=n - 1)
    found = mean_of(added) if n >= FEWEST_CORRELATED else alone
    return replace(found, value=value).estimate()
