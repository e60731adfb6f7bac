"""Distances are the closed forms, their bias is removed, and their redraw intervals cover."""

import numpy as np
import pytest
import scipy.linalg
from scipy.special import stdtrit

from train.evaluate.distances import BLOCKS, Array, Statistics, distances

D = 8
RNG = np.random.default_rng(3)


def spread(scale: float) -> Array:
    factor = RNG.normal(size=(D, D)) * np.sqrt(scale / D)
    return factor @ factor.T


# The distributions of the samples and of the reference.
REFERENCE = Statistics(mu=np.zeros(D), sigma=spread(1.0) + 0.1 * np.eye(D), count=0)
MU, SIGMA = RNG.normal(size=D) * 0.1, REFERENCE.sigma + spread(0.2)
TRUTH = float(
    MU @ MU
    + np.trace(SIGMA + REFERENCE.sigma - 2 * scipy.linalg.sqrtm(SIGMA @ REFERENCE.sigma).real)
)


def drawn(rng: np.random.Generator, count: int) -> Array:
    return rng.multivariate_normal(MU, SIGMA, count)


def test_the_distance_of_many_samples_is_the_closed_form() -> None:
    found = distances(drawn(np.random.default_rng(0), 200_000), REFERENCE)
    assert found["fid"] == pytest.approx(TRUTH, rel=0.02)
    assert "kid" not in found


def test_500_redraw_intervals_cover_the_distance_at_infinitely_many_samples() -> None:
    rng = np.random.default_rng(0)
    found = [distances(drawn(rng, 400), REFERENCE) for _ in range(500)]
    estimates = np.array([one["fid_inf"] for one in found])
    error = estimates.std() / np.sqrt(500)
    assert np.mean([one["fid"] for one in found]) > TRUTH + 10 * error
    assert estimates.mean() == pytest.approx(TRUTH, abs=3 * error)
    blocks = np.array([one["fid_blocks"] for one in found])
    half = stdtrit(BLOCKS - 1, 0.975) * blocks.std(axis=1, ddof=1) / np.sqrt(BLOCKS)
    assert 0.93 <= np.mean(np.abs(blocks.mean(axis=1) - TRUTH) <= half) <= 0.97


def test_the_kernel_distance_is_unbiased_and_its_mean_of_pairs() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        rows = rng.normal(size=(100, D)).astype(np.float32)
        reference = Statistics(mu=np.zeros(D), sigma=np.eye(D), count=100, rows=rows)
        found.append(distances(rng.normal(size=(100, D)), reference)["kid"])
    assert abs(np.mean(found)) < 3 * np.std(found) / 10
    few, small = rng.normal(size=(60, 2)), rng.normal(size=(30, 2))
    pair = distances(few, Statistics(mu=np.zeros(2), sigma=np.eye(2), count=0, rows=small))
    kernels = [[(x @ y / 2 + 1) ** 3 for y in np.concatenate([few, small])]
               for x in np.concatenate([few, small])]  # fmt: skip
    k = np.array(kernels) * (1 - np.eye(90))
    expected = k[:60, :60].sum() / 60 / 59 + k[60:, 60:].sum() / 30 / 29 - 2 * k[:60, 60:].mean()
    assert pair["kid"] == pytest.approx(expected)


def test_too_few_samples_have_no_estimate_without_bias() -> None:
    found = distances(drawn(np.random.default_rng(0), 5 * D - 1), REFERENCE)
    assert sorted(found) == ["fid", "fid_samples"]
