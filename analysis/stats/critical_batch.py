"""The critical batch size, from the samples that runs of different batches took to a target.

(S/S_min - 1)(E/E_min - 1) = 1 (McCandlish et al. 2018) makes E(B) = E_min (1 + B / B_crit): a line,
fitted by least squares with weights from the scatter of the repeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.stats.intervals import Estimate, Floats

DRAWS = 2000
FEWEST_FOR_SCATTER = 15


@dataclass(frozen=True, kw_only=True)
class CriticalBatch:
    """The critical batch size, and the samples that the smallest batches would take."""

    batch: Estimate
    e_min: float


def critical_batch(samples: Mapping[int, Floats]) -> Estimate | None:
    """B_crit alone, as `critical_line` finds it."""
    found = critical_line(samples)
    return found.batch if found else None


def critical_line(samples: Mapping[int, Floats]) -> CriticalBatch | None:
    """The line through {global batch: samples to the target of each run [k]}.

    None below two batches. The interval is a parametric bootstrap of the means with Student's
    errors; its end is open (None) where no finite B_crit is excluded. The scatter is each batch's
    own where it has many runs, else one relative scatter for all. Where nothing is repeated it is
    that about the line, whose bend counts as noise then, and weights fall as samples grow; two
    batches leave nothing about a line, and so no interval.
    """
    told = {batch: values for batch, values in samples.items() if len(values)}
    if len(told) < 2:
        return None
    batches = np.array(sorted(told), dtype=np.float64)
    runs = [np.asarray(told[int(batch)], dtype=np.float64) for batch in batches]
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
        is_told = np.isfinite(best) and best > 0
        return CriticalBatch(batch=Estimate(value=best), e_min=e_min) if is_told else None
    rng = np.random.default_rng(0)
    errors = rng.standard_t(freedom, (DRAWS, len(means))) * np.sqrt(variance)
    found = _critical(*_fit(batches, means + errors, weights))
    # Of draws themselves: between two that never rise there is nothing to interpolate.
    low, high = np.quantile(found, [0.025, 0.975], method="nearest")
    batch = Estimate(value=best, low=float(low), high=float(high) if np.isfinite(high) else None)
    return CriticalBatch(batch=batch, e_min=e_min)


def _variance_about(fitted: Floats, means: Floats) -> Floats:
    """The variance of each mean [m], from the relative scatter about a line of two parameters."""
    squares = float(((means / fitted - 1) ** 2).sum())
    return squares / max(len(means) - 2, 1) * fitted**2


def _variance(runs: list[Floats]) -> Floats:
    """The variance of each batch's mean [m]: its own, or from the pooled relative scatter."""
    repeated = [values for values in runs if len(values) > 1]
    squares = sum(float(((values / values.mean() - 1) ** 2).sum()) for values in repeated)
    freedom = sum(len(values) - 1 for values in repeated)
    relative = squares / freedom if freedom else 1.0
    own = [
        values.var(ddof=1) if len(values) >= FEWEST_FOR_SCATTER else relative * values.mean() ** 2
        for values in runs
    ]
    return np.array([max(var, 1e-12) / len(values) for var, values in zip(own, runs, strict=True)])


def _fit(batches: Floats, means: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Intercept and slope [d] of a weighted line through each row of `means` [d, m]."""
    share = weights / weights.sum()
    centre = float(share @ batches)
    middle = means @ share
    slope = ((means - middle[:, None]) * (share * (batches - centre))).sum(axis=1) / float(
        share @ (batches - centre) ** 2
    )
    return middle - slope * centre, slope


def _critical(intercept: Floats, slope: Floats) -> Floats:
    """B_crit of each line; infinite where it does not rise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slope > 0, np.maximum(intercept, 0) / slope, np.inf)
