"""Predict from the noise by bins how much variance other timestep samplers would remove.

Under the density itself tr Sigma = sum w_k (tr Sigma_k + |G_k|^2) - |G|^2. One timestep from every
stratum leaves sum w_k tr Sigma_k, as far as bins resolve strata. Bins drawn with shares q_k and
weighted by w_k / q_k leave sum w_k^2 / q_k (tr Sigma_k + |G_k|^2) - |G|^2.
"""

from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.stages import BinnedSums
from analysis.stats.intervals import Estimate, Floats
from analysis.stats.jackknife import jackknife
from analysis.stats.noise_scale import image_noise

# The bound on the weight w_k / q_k: a bin whose noise was underestimated is still drawn.
MAX_WEIGHT = 5.0


@dataclass(frozen=True, kw_only=True)
class VarianceReduction:
    """Variances as shares of that under the density, by `stratified` and by `variance` sampling.

    `bin_shares` are the shares q_k of the latter.
    """

    scope: str
    stratified: Estimate
    variance: Estimate
    bin_shares: Floats


def predict_variance(binned: BinnedSums) -> VarianceReduction | None:
    """Return the predicted variances, or None if a bin of weight above 0 has too few samples.

    Every such bin and all of t must have equally many samples, since the jackknife leaves them out
    together.
    """
    used = [k for k, weight in enumerate(binned.weights) if weight > 0]
    if not used or {len(binned.bins[k]) for k in used} != {len(binned.total)}:
        return None
    weights = binned.weights[used]
    batch = binned.bins[used[0]].batch
    columns = np.stack([binned.bins[k].columns for k in used], axis=1)  # [n, bins, 4]
    total = binned.total.columns[:, :2]
    if (columns.sum(axis=0)[:, [1, 3]] <= 0).any() or total.sum(axis=0)[1] <= 0:
        return None
    mean, noise = image_noise(columns.sum(axis=0), batch)
    g2 = total.sum(axis=0)[0] / total.sum(axis=0)[1]
    if float(weights @ (noise + mean)) <= g2:
        return None
    shares = _shares(weights, noise)
    flat = np.concatenate([columns.reshape(len(columns), -1), total], axis=1)

    def ratio(sampler: str) -> Estimate:
        def of(sums: Floats) -> Floats:
            by_bin = sums[..., :-2].reshape(*sums.shape[:-1], len(used), 4)
            mean, noise = image_noise(by_bin, batch)
            g2 = sums[..., -2] / sums[..., -1]
            before = (noise + mean) @ weights - g2
            after = noise @ weights
            if sampler == "variance":
                after = (noise + mean) @ (weights**2 / shares) - g2
            return np.asarray(after / before)

        return jackknife(flat, of)

    bin_shares = np.zeros(len(binned.weights))
    bin_shares[used] = shares
    return VarianceReduction(
        scope=binned.scope,
        stratified=ratio("stratified"),
        variance=ratio("variance"),
        bin_shares=bin_shares,
    )


def _shares(weights: Floats, noise: Floats) -> Floats:
    """Return q_k proportional to w_k sqrt(tr Sigma_k), with a minimum share for every bin."""
    wanted = weights * np.sqrt(np.maximum(noise, 0))
    wanted = wanted / wanted.sum() if wanted.sum() > 0 else weights / weights.sum()
    shares = np.maximum(wanted, weights / MAX_WEIGHT)
    return np.asarray(shares / shares.sum())
