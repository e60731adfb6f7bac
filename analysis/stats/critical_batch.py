"""Fit the critical batch size to the samples that runs of several batch sizes took to a target.

(S/S_min - 1)(E/E_min - 1) = 1 (McCandlish et al. 2018) gives E(B) = E_min (1 + B / B_crit): a
line, fitted by least squares with weights from the scatter of the repeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.stats.intervals import Estimate, Floats

DRAWS = 2000
# How far from 1 the exponent of the batch may be: so little changes B_crit by little.
BEND = 0.15
EXPONENTS = np.arange(0.2, 2.5, 0.02)


@dataclass(frozen=True, kw_only=True)
class CriticalBatch:
    """The critical batch size, and E_min, the samples in the limit of small batches.

    If the samples do not rise along a line over the batch, there is no single critical batch size,
    and no interval.
    """

    b_crit: Estimate
    e_min: float
    is_line: bool = True


def fit_critical_batch(
    samples: Mapping[int, Floats], *, blur: Mapping[int, float] | None = None
) -> CriticalBatch | None:
    """Fit the line through {global batch: samples to the target of each run [k]}.

    Return None for fewer than two batch sizes. The interval is a parametric bootstrap of the means
    with Student's t errors; `high` is None if no finite B_crit is excluded. All batch sizes share
    one relative scatter. Without repeats the scatter is that about the line, so that curvature
    counts as noise, and weights are 1/samples; two batch sizes then leave no degree of freedom, and
    so no interval. The logs of all samples of a batch size may be off by its `blur`, in the worst
    case those of small and of large batches in opposite directions: the interval holds both fits.
    """
    samples = {batch: values for batch, values in samples.items() if len(values)}
    if len(samples) < 2:
        return None
    batches = np.array(sorted(samples), dtype=np.float64)
    runs = [np.asarray(samples[int(batch)], dtype=np.float64) for batch in batches]
    means = np.array([values.mean() for values in runs])
    is_repeated = max(map(len, runs)) > 1
    weights = 1 / (_variance(runs) if is_repeated else means)
    intercept, slope = _fit(batches, means[None, :], weights)
    best, e_min = float(_critical(intercept, slope)[0]), float(intercept[0])
    if is_repeated:
        freedom, variance = sum(len(values) - 1 for values in runs), _variance(runs)
    else:
        freedom = len(means) - 2
        variance = _variance_about(intercept + slope * batches, means)
    if freedom == 0 or not np.isfinite(best):
        is_fitted = np.isfinite(best) and best > 0
        return CriticalBatch(b_crit=Estimate(value=best), e_min=e_min) if is_fitted else None
    # Fewer show no exponent.
    is_shown = len(batches) > 2 and sum(map(len, runs)) > 4
    if is_shown and not _fits_line(batches, means, weights):
        return CriticalBatch(b_crit=Estimate(value=best), e_min=e_min, is_line=False)
    rng = np.random.default_rng(0)
    errors = rng.standard_t(freedom, (DRAWS, len(means))) * np.sqrt(variance)
    off = np.array([(blur or {}).get(int(batch), 0.0) for batch in batches])
    off *= np.sign(batches - np.median(batches))
    tilted = [_critical(*_fit(batches, (means + errors) * np.exp(t), weights)) for t in (off, -off)]
    # Draws may be infinite, and between two infinite ones there is nothing to interpolate.
    low, high = (
        float(np.quantile(drawn, end, method="nearest"))
        for drawn, end in zip(tilted, (0.025, 0.975), strict=True)
    )
    b_crit = Estimate(value=best, low=low, high=high if np.isfinite(high) else None)
    return CriticalBatch(b_crit=b_crit, e_min=e_min)


def _fits_line(batches: Floats, means: Floats, weights: Floats) -> bool:
    """Return whether samples that rise as E (1 + (B / B_crit) ^ a) may do so with a = 1.

    Other exponents have another B_crit, of which the line's interval tells nothing.
    """
    fitted = np.empty((len(EXPONENTS), len(means)))
    for row, exponent in enumerate(EXPONENTS):
        (intercept,), (slope,) = _fit(batches**exponent, means[None, :], weights)
        fitted[row] = intercept + slope * batches**exponent
    squares = (weights * (fitted - means) ** 2).sum(axis=1)
    return abs(float(EXPONENTS[np.argmin(squares)]) - 1) <= BEND


def _variance_about(fitted: Floats, means: Floats) -> Floats:
    """Return the variance of each mean [m] from the relative scatter about the fitted line."""
    squares = float(((means / fitted - 1) ** 2).sum())
    return squares / max(len(means) - 2, 1) * fitted**2


def _variance(runs: list[Floats]) -> Floats:
    """Return the variance of each batch size's mean [m] from the pooled relative scatter."""
    repeated = [values for values in runs if len(values) > 1]
    squares = sum(float(((values / values.mean() - 1) ** 2).sum()) for values in repeated)
    freedom = sum(len(values) - 1 for values in repeated)
    relative = squares / freedom if freedom else 1.0
    return np.array([max(relative * one.mean() ** 2, 1e-12) / len(one) for one in runs])


def _fit(batches: Floats, means: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return intercept and slope [d] of a weighted line through each row of `means` [d, m]."""
    slope, intercept = np.polyfit(batches, means.T, 1, w=np.sqrt(weights))
    return intercept, slope


def _critical(intercept: Floats, slope: Floats) -> Floats:
    """Return B_crit of each line; infinite if the line does not rise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slope > 0, np.maximum(intercept, 0) / slope, np.inf)
