"""The critical batch size, from the samples that runs of different batches took to a target.

(S/S_min - 1)(E/E_min - 1) = 1 (McCandlish et al. 2018) makes E(B) = E_min (1 + B / B_crit): a line,
fitted by least squares with weights from the scatter of the repeats.
"""

from collections.abc import Mapping

import numpy as np

from analysis.noise import Estimate, Floats

DRAWS = 2000
FEWEST_FOR_SCATTER = 15


def critical_batch(samples: Mapping[int, Floats]) -> Estimate | None:
    """B_crit from {global batch: samples to the target of each run [k]}; None below two batches.

    The interval is a parametric bootstrap of the means with Student's errors; there is none
    without repeats, and its end is open (None) where no finite B_crit is excluded. The scatter is
    each batch's own where it has many runs, else one relative scatter for all.
    """
    told = {batch: values for batch, values in samples.items() if len(values)}
    if len(told) < 2:
        return None
    batches = np.array(sorted(told), dtype=np.float64)
    runs = [np.asarray(told[int(batch)], dtype=np.float64) for batch in batches]
    means = np.array([values.mean() for values in runs])
    weights = 1 / _variance(runs)
    best = _fit(batches, means[None, :], weights)[0]
    if max(map(len, runs)) < 2 or not np.isfinite(best):
        return Estimate(value=float(best)) if np.isfinite(best) and best > 0 else None
    rng = np.random.default_rng(0)
    freedom = sum(len(values) - 1 for values in runs)
    errors = rng.standard_t(freedom, (DRAWS, len(means))) * np.sqrt(_variance(runs))
    draws = means + errors
    found = _fit(batches, draws, weights)
    low, high = np.quantile(found, [0.025, 0.975])
    return Estimate(
        value=float(best), low=float(low), high=float(high) if np.isfinite(high) else None
    )


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


def _fit(batches: Floats, means: Floats, weights: Floats) -> Floats:
    """B_crit of each row of `means` [d, m] by a weighted line; infinite where it does not rise."""
    share = weights / weights.sum()
    centre = float(share @ batches)
    middle = means @ share
    slope = ((means - middle[:, None]) * (share * (batches - centre))).sum(axis=1) / float(
        share @ (batches - centre) ** 2
    )
    intercept = middle - slope * centre
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(slope > 0, np.maximum(intercept, 0) / slope, np.inf)
