"""Means of one or two samples of independent values, and whether paired values go together."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc

from analysis.stats.intervals import Floats
from analysis.stats.mean import Mean, satterthwaite
from analysis.stats.sequential import CommonVariance

# Nothing is lent.
NONE = CommonVariance()
# Pairs share something, and causes explain something, if chance would do as much in so few cases.
SHARED_LEVEL = 0.05
# Gaps vary if they would as much by chance in so few cases.
VARY_LEVEL = 0.01


def one_sample(logs: Floats, *, lent: CommonVariance = NONE) -> Mean:
    """Return the mean of two or more independent values; a variance that is `lent` supports it."""
    part, freedom = _of_mean(logs, lent)
    return Mean(value=float(logs.mean()), error=math.sqrt(part), freedom=freedom)


def _of_mean(logs: Floats, lent: CommonVariance) -> tuple[float, float]:
    """Return the variance of a mean, and its degrees of freedom.

    What is lent supports it, and raises a smaller one, unless it is too large to be one of those.
    """
    variance, lent = float(logs.var(ddof=1)), lent.lent_to(logs)
    moderated = float(lent.moderated(np.array(variance), len(logs)))
    return max(variance, moderated) / len(logs), lent.freedom + len(logs) - 1


def welch(below: Floats, above: Floats, *, lent: Sequence[CommonVariance] = (NONE, NONE)) -> Mean:
    """Return the difference of the means of two samples of unlike variance (Welch 1947).

    The variance of cells that is `lent` to each of them supports its own.
    """
    sides = zip((below, above), lent, strict=True)
    parts, known = zip(*(_of_mean(logs, own) for logs, own in sides), strict=True)
    return satterthwaite(float(above.mean() - below.mean()), parts, known)


def explain(values: Floats, causes: Floats) -> bool:
    """Whether `causes` [n, m] explain more of `values` [n] than chance (F of a regression)."""
    n, terms = causes.shape
    left = n - terms - 1
    design = np.column_stack([np.ones(n), causes])
    rest = values - design @ np.linalg.lstsq(design, values, rcond=1e-6)[0]
    unexplained = max(float(rest @ rest) / (n * float(values.var())), 1e-12)
    ratio = (1 / unexplained - 1) * left / terms
    return left > 0 and bool(fdtrc(terms, left, ratio) < SHARED_LEVEL)


def without_columns(logs: Floats) -> Floats:
    """Return `logs` [arms, n] without what the columns share, scaled up for what that takes."""
    arms = len(logs)
    about = logs - logs.mean(axis=1, keepdims=True)
    return np.asarray((about - about.mean(axis=0)) * math.sqrt(arms / (arms - 1)))


def vary(gaps: Floats, samples: Sequence[Floats]) -> bool:
    """Whether gaps between the means of two samples each differ by more than chance (F)."""
    if min(map(len, samples)) < 2:
        return False
    freedom = sum(len(own) - 1 for own in samples)
    within = sum(float(own.var(ddof=1)) / len(own) for own in samples) / len(gaps)
    between = float(gaps.var(ddof=1))
    return within > 0 and bool(fdtrc(len(gaps) - 1, freedom, between / within) < VARY_LEVEL)


def share_something(logs: Floats) -> bool:
    """Whether the columns of `logs` [arms, n] differ by more than chance (F of a two-way table)."""
    arms, n = logs.shape
    about = logs - logs.mean(axis=1, keepdims=True)
    columns = about.mean(axis=0)
    between = arms * float(columns @ columns) / (n - 1)
    freedom = (n - 1) * (arms - 1)
    within = float(((about - columns) ** 2).sum()) / freedom
    return within == 0 or bool(fdtrc(n - 1, freedom, between / within) < SHARED_LEVEL)
