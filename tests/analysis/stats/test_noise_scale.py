"""The noise scale of models with known gradient and noise, and each fault of study C.

Linear regression: x ~ N(0, I), y = w* x + sigma e, squared loss at a distance v from w*. The
gradient of one example is x (x v) - sigma e x, so G = v and
tr Sigma = (d + 1) |v|^2 + sigma^2 d.
"""

import numpy as np
import pytest
from scipy.signal import lfilter

from analysis.stats.intervals import Floats
from analysis.stats.mean import mean_of
from analysis.stats.noise_scale import NoiseScale, jackknife, noise_scale

D, SIGMA = 6, 1.0
V = np.full(D, 0.4)
G2 = float(V @ V)
S = (D + 1) * G2 + SIGMA**2 * D


def gradients(rng: np.random.Generator, *shape: int, v: Floats = V) -> Floats:
    """Return gradients of single examples [*shape, D]."""
    x = rng.standard_normal((*shape, D))
    return x * (x @ v + SIGMA * rng.standard_normal(shape))[..., None]


def norms(each: Floats) -> tuple[Floats, Floats]:
    """Return mean |g_k|^2 and |g|^2 [n] of mean gradients [n, K, D]."""
    return (each**2).sum(axis=2).mean(axis=1), (each.mean(axis=1) ** 2).sum(axis=1)


def run(rng: np.random.Generator, *, steps: int, count: int = 4, batch: int = 16) -> NoiseScale:
    """Return the noise scale of `steps` training steps."""
    each = gradients(rng, steps, count, batch).mean(axis=2)
    return noise_scale(*norms(each), count=count, batch=batch)


def test_norms_meet_the_truth_within_2_percent_over_2000_steps() -> None:
    found = run(np.random.default_rng(0), steps=2000)
    assert found.g2.value == pytest.approx(G2, rel=0.02)
    assert found.s.value == pytest.approx(S, rel=0.02)
    assert found.b_simple.value == pytest.approx(S / G2, rel=0.02)


def test_a_record_weighs_as_many_samples_as_it_has_steps() -> None:
    rng = np.random.default_rng(4)
    small, big = rng.random(40) + 1, rng.random(40)
    each = noise_scale(small, big, count=3, batch=2)
    means = noise_scale(
        small.reshape(20, 2).mean(1), big.reshape(20, 2).mean(1), count=3, batch=2,
        weight=np.full(20, 2.0),
    )  # fmt: skip
    assert means.s.value == pytest.approx(each.s.value)
    assert means.g2.value == pytest.approx(each.g2.value)


def test_the_jackknife_of_a_mean_is_the_interval_of_a_mean() -> None:
    for values in (np.random.default_rng(5).standard_normal(30), correlated(200)):
        columns = np.stack([values, np.ones(len(values))], axis=1)
        found = jackknife(columns, lambda sums: sums[..., 0] / sums[..., 1])
        known = mean_of(values).estimate()
        assert (found.low, found.high) == pytest.approx((known.low, known.high))


def correlated(n: int) -> np.ndarray:
    """Return an autoregression of coefficient .8."""
    shocks = np.random.default_rng(8).standard_normal(n)
    return lfilter([1.0], [1.0, -0.8], shocks)


def test_too_few_samples_are_undetermined() -> None:
    found = run(np.random.default_rng(6), steps=9)
    assert found.b_simple is None
    assert found.g2.low is None


def test_noise_without_signal_is_undetermined() -> None:
    each = np.random.default_rng(7).standard_normal((200, 4, D))
    found = noise_scale(*norms(each), count=4, batch=1)
    assert found.g2.low < 0 < found.g2.high
    assert found.b_simple is None
