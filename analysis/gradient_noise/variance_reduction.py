"""What other ways of drawing t would save of the gradient's variance, predicted from its bins.

tr Sigma = sum w_k (tr Sigma_k + |G_k|^2) - |G|^2 under the density itself. One time from every
stratum leaves sum w_k tr Sigma_k, as far as bins tell strata apart. Bins drawn by shares q_k, with
weights w_k / q_k, leave sum w_k^2 / q_k (tr Sigma_k + |G_k|^2) - |G|^2.
"""

from dataclasses import dataclass

import numpy as np

from analysis.gradient_noise.records import BinnedSums
from analysis.stats.intervals import Estimate, Floats
from analysis.stats.noise_scale import image_noise, jackknife

# No weight w_k / q_k is to be larger: a bin whose noise was thought small is drawn nonetheless.
LARGEST_WEIGHT = 5.0


@dataclass(frozen=True, kw_only=True)
class VarianceReduction:
    """Variances as shares of that under the density; `bin_shares` is what the last one draws by.

    `gain` is sum w s^2 / (sum w s)^2 with s^2 = tr Sigma_k: what is gained where G is nothing.
    """

    scope: str
    stratified: Estimate
    variance: Estimate
    gain: float
    bin_shares: Floats


def predict_variance(binned: BinnedSums) -> VarianceReduction | None:
    """The savings that bins predict; None where one that t falls into has too few samples.

    As many samples as of every bin are needed of all t: they are left out one by one together.
    """
    used = [k for k, weight in enumerate(binned.weights) if weight > 0]
    if not used or {len(binned.bins[k]) for k in used} != {len(binned.total)}:
        return None
    weights = binned.weights[used]
    batch = binned.bins[used[0]].batch
    columns = np.stack([binned.bins[k].columns() for k in used], axis=1)  # [n, bins, 4]
    whole = binned.total.columns()[:, :2]
    if (columns.sum(axis=0)[:, [1, 3]] <= 0).any() or whole.sum(axis=0)[1] <= 0:
        return None
    mean, noise = image_noise(columns.sum(axis=0), batch)
    g2 = whole.sum(axis=0)[0] / whole.sum(axis=0)[1]
    if float(weights @ (noise + mean)) <= g2:
        return None
    shares = _shares(weights, noise)
    flat = np.concatenate([columns.reshape(len(columns), -1), whole], axis=1)

    def ratio(after: str) -> Estimate:
        def of(sums: Floats) -> Floats:
            by_bin = sums[..., :-2].reshape(*sums.shape[:-1], len(used), 4)
            mean, noise = image_noise(by_bin, batch)
            g2 = sums[..., -2] / sums[..., -1]
            before = (noise + mean) @ weights - g2
            left = noise @ weights
            if after == "variance":
                left = (noise + mean) @ (weights**2 / shares) - g2
            return np.asarray(left / before)

        return jackknife(flat, of)

    bin_shares = np.zeros(len(binned.weights))
    bin_shares[used] = shares
    root = np.sqrt(np.maximum(noise, 0))
    return VarianceReduction(
        scope=binned.scope,
        stratified=ratio("stratified"),
        variance=ratio("variance"),
        gain=float(weights @ root**2 / (weights @ root) ** 2),
        bin_shares=bin_shares,
    )


def _shares(weights: Floats, noise: Floats) -> Floats:
    """q_k proportional to w_k sqrt(tr Sigma_k), but for a least share of every bin."""
    wanted = weights * np.sqrt(np.maximum(noise, 0))
    wanted = wanted / wanted.sum() if wanted.sum() > 0 else weights / weights.sum()
    shares = np.maximum(wanted, weights / LARGEST_WEIGHT)
    return np.asarray(shares / shares.sum())
