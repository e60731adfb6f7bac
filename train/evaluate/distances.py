"""Frechet distance of features from a reference, without its bias, and kernel distance.

The Frechet distance of N samples is too large by about a / N. The jackknife over blocks of samples
removes a / N, as the extrapolation to infinitely many samples of Chong & Forsyth (2020, arXiv
1911.07023) does, and gives the variance between redraws of the samples (Quenouille 1956).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLOCKS = 20
# Of planted intervals 96 % held the truth at 5 samples per feature, 87 % at 2 and none at 1.
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

    `fid` is biased by N, `fid_inf` and `kid` are not. `fid_blocks` holds the jackknife's
    pseudo-value of each block of samples: their mean is `fid_inf`, with Student's interval over
    redraws. Too few samples have neither of these two, and a reference without features gives no
    `kid`. The reference counts as exact for `fid`.
    """
    blocks = np.array_split(rows.astype(np.float64), BLOCKS)
    frechet = _frechet_distance_from(reference)
    parts = [moments(block - reference.mu) for block in blocks]
    total = np.sum(parts, axis=0)
    fid = frechet(total)
    fields: dict[str, Any] = {"fid": fid, "fid_samples": len(rows)}
    if reference.rows is not None:
        few = rows[:: -(-len(rows) // MOST_ROWS)].astype(np.float64)
        fields["kid"] = _kernel_distance(few, reference.rows.astype(np.float64))
    if len(rows) >= SAMPLES_PER_FEATURE * rows.shape[1]:
        pseudo = [BLOCKS * fid - (BLOCKS - 1) * frechet(total - part) for part in parts]
        fields |= {"fid_blocks": pseudo, "fid_inf": float(np.mean(pseudo))}
    return fields


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


def _kernel_distance(rows: Array, reference: Array) -> float:
    """Return the unbiased squared MMD with the kernel (x y / d + 1)^3 (Binkowski et al. 2018)."""

    def mean(a: Array, b: Array) -> float:
        total = sum(_kernel(part @ b.T / b.shape[1]) for part in np.array_split(a, BLOCKS))
        itself = _kernel((a**2).mean(axis=1)) if a is b else 0.0
        return (total - itself) / (len(a) * (len(b) - (a is b)))

    return mean(rows, rows) - 2 * mean(rows, reference) + mean(reference, reference)


def _kernel(products: Array) -> float:
    return float(((products + 1) * (products + 1) * (products + 1)).sum())
