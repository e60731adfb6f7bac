"""Frechet and kernel distance of features from a reference, each with its jackknife.

The Frechet distance of N samples is too large by about a / N. The jackknife over blocks of samples
removes a / N, as the extrapolation to infinitely many samples of Chong & Forsyth (2020, arXiv
1911.07023) does, and gives the variance between redraws of the samples (Quenouille 1956).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLOCKS = 20
# With fewer the bias is not near a / N: of planted intervals 96 % held the truth at 5 samples per
# feature, 87 % at 2 and none at 1.
SAMPLES_PER_FEATURE = 5
# The kernel distance compares every pair, so it takes no more samples and images than this.
MOST_ROWS = 10_240


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Mean `[d]` and covariance `[d, d]` of the features of `count` images.

    `rows` are the features `[m, d]` of at most `MOST_ROWS` of the images, None if unknown.
    """

    mu: Array
    sigma: Array
    count: int
    rows: NDArray[np.float32] | None = None


def distances(rows: NDArray[np.float32], reference: Statistics) -> dict[str, Any]:
    """Return the distances of features `[N, d]`, in the order of drawing, as fields of a record.

    `fid` is biased by N, `fid_inf` is not. The lists `fid_blocks` and `kid_blocks` hold the
    jackknife's pseudo-value of each block of samples: their mean is an estimate, with Student's
    interval over redraws. With too few samples there is `fid` only, and without features of the
    reference no `kid`. The reference counts as exact.
    """
    blocks = np.array_split(rows.astype(np.float64), BLOCKS)
    frechet = _frechet_distance_from(reference)
    parts = [moments(block - reference.mu) for block in blocks]
    fields: dict[str, Any] = {"fid": frechet(sum(parts)), "fid_samples": len(rows)}
    if len(rows) < SAMPLES_PER_FEATURE * rows.shape[1]:
        return fields
    fields["fid_blocks"] = _pseudo_values(fields["fid"], [frechet(sum(parts) - p) for p in parts])
    fields["fid_inf"] = float(np.mean(fields["fid_blocks"]))
    if reference.rows is not None:
        few = [block[: MOST_ROWS // BLOCKS] for block in blocks]
        fields["kid"], without = _kernel_distances(few, reference.rows.astype(np.float64))
        fields["kid_blocks"] = _pseudo_values(fields["kid"], without)
    return fields


def _pseudo_values(whole: float, without: Sequence[float]) -> list[float]:
    return [BLOCKS * whole - (BLOCKS - 1) * part for part in without]


def moments(rows: Array) -> Array:
    """Return the sum over rows x `[n, d]` of (x, 1) (x, 1)^T, `[d + 1, d + 1]`."""
    x = np.append(rows, np.ones((len(rows), 1)), axis=1)
    return x.T @ x


def mean_and_covariance(sums: Array) -> tuple[Array, Array]:
    """Return mean `[d]` and covariance `[d, d]` from `moments`."""
    count, mu = sums[-1, -1], sums[-1, :-1] / sums[-1, -1]
    return mu, (sums[:-1, :-1] - count * np.outer(mu, mu)) / (count - 1)


def _frechet_distance_from(reference: Statistics) -> Callable[[Any], float]:
    """Return the squared Frechet distance as a function of `moments` about the reference's mean.

    |mu1 - mu2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) (Dowson & Landau 1982). S1 S2 has the eigenvalues
    of R S2 R with R = S1^(1/2), which is symmetric.
    """
    values, vectors = np.linalg.eigh(reference.sigma)
    root = (vectors * np.sqrt(values.clip(0))) @ vectors.T

    def distance(sums: Array) -> float:
        mu, sigma = mean_and_covariance(sums)
        roots = np.sqrt(np.linalg.eigvalsh(root @ sigma @ root).clip(0))
        return float(mu @ mu + np.trace(sigma) + values.sum() - 2 * roots.sum())

    return distance


def _kernel_distances(blocks: Sequence[Array], reference: Array) -> tuple[float, list[float]]:
    """Return the unbiased squared MMD, and without each block (KID, Binkowski et al. 2018)."""
    n, m = np.array([len(block) for block in blocks]), len(reference)
    pairs = np.array([[_kernel(a, b).sum() for b in blocks] for a in blocks])
    pairs -= np.diag([_kernel_of_itself(block) for block in blocks])
    across = np.array([_kernel(block, reference).sum() for block in blocks])
    inside = sum(_kernel(part, reference).sum() for part in np.array_split(reference, BLOCKS))
    inside = (inside - _kernel_of_itself(reference)) / (m * (m - 1))

    def distance(kept: NDArray[np.bool_]) -> float:
        count = n[kept].sum()
        within = pairs[np.ix_(kept, kept)].sum() / (count * (count - 1))
        return float(within - 2 * across[kept].sum() / (count * m) + inside)

    return distance(n > 0), [distance(np.arange(BLOCKS) != block) for block in range(BLOCKS)]


def _kernel(a: Array, b: Array) -> Array:
    """Return (x y / d + 1)^3 for every pair of rows, `[len(a), len(b)]`."""
    base = a @ b.T / a.shape[1] + 1
    return base * base * base


def _kernel_of_itself(rows: Array) -> float:
    return float((((rows**2).mean(axis=1) + 1) ** 3).sum())
