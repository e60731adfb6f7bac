"""The gradient noise scale of a stretch of training: ratios of averages, with intervals.

Each sample has |g|^2 of the mean gradient of K microbatches, and the mean |g_k|^2 of these. They
give unbiased |G|^2 = (K |g|^2 - |g_k|^2) / (K - 1), and tr Sigma = batch (|g_k|^2 - |G|^2)
(McCandlish et al. 2018, A.1). Samples, negative ones included, are averaged before anything is
divided.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.mean import MIN_VALUES, Mean, mean_of

# Fewer rows do not show their autocorrelation, and count as independent.
FEWEST_CORRELATED = 30


@dataclass(frozen=True, kw_only=True)
class NoiseScale:
    """|G|^2, tr Sigma, and the noise scale B_simple in images if both differ from zero."""

    g2: Estimate
    s: Estimate
    b_simple: Estimate | None


def noise_scale(
    small: Floats, big: Floats, *, count: int | Floats, batch: int, weight: Floats | None = None
) -> NoiseScale:
    """Return the noise scale of the mean |g_k|^2 and the |g|^2 of `count` microbatches, each [n].

    A sample of `batch` images in each microbatch stands for `weight` [n] steps, by default one. The
    scale is undetermined if the interval of |G|^2 or of tr Sigma touches zero, or if there are
    fewer than `MIN_VALUES` samples. Its interval is the jackknife's, on the log scale.
    """

    def s_of(sums: Floats) -> Floats:
        return np.asarray(batch * (sums[..., 1] / sums[..., 2] - _g2(sums)))

    weight = np.ones(len(small)) if weight is None else weight
    each = (count * big - small) / (count - 1)
    columns = np.stack([each * weight, small * weight, weight], axis=1)
    g2, s = jackknife(columns, _g2), jackknife(columns, s_of)
    b_simple = None
    if (g2.low or 0) > 0 and (s.low or 0) > 0:
        log = jackknife(columns, lambda sums: np.log(s_of(sums) / _g2(sums)))
        b_simple = log.map(math.exp)
    return NoiseScale(g2=g2, s=s, b_simple=b_simple)


def _g2(sums: Floats) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 2])


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
