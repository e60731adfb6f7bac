"""Running means are told from plain losses, and runs of one seed from those of several."""

import numpy as np
import pytest

from analysis.stats.record_noise import begin_as_one, is_running_mean
from benchmarks.analysis_coverage.processes import averaged


def curve(count):
    return 0.2 + 1.5 / (20.0 * np.arange(1, count + 1) / 100 + 1)


@pytest.mark.parametrize("count", [50, 100, 200])
@pytest.mark.parametrize("noise", [0.005, 0.03])
def test_plain_losses_are_no_running_mean(count, noise):
    rng = np.random.default_rng(1)
    draws = [curve(count) * (1 + noise * rng.standard_normal(count)) for _ in range(60)]
    assert sum(map(is_running_mean, draws)) <= 12


@pytest.mark.parametrize("decay", [0.95, 0.999])
def test_most_running_means_are_told(decay):
    rng = np.random.default_rng(2)
    draws = [curve(200) * (1 + 0.1 * rng.standard_normal(200)) for _ in range(60)]
    assert sum(is_running_mean(averaged(one, decay=decay)) for one in draws) >= 40


def test_one_seed_drifts_apart_and_others_differ_from_the_first_record():
    rng = np.random.default_rng(3)
    a = curve(100) * (1 + 0.01 * rng.standard_normal(100))
    apart = np.minimum(1, np.arange(100) / 30) * 0.003 * rng.standard_normal(100)
    assert begin_as_one(a, a * np.exp(apart))
    others = [curve(100) * (1 + 0.01 * rng.standard_normal(100)) for _ in range(100)]
    shifted = [a * np.exp(0.002 * rng.standard_normal()) for _ in range(100)]
    assert not any(begin_as_one(a, b) for b in others)
    assert sum(begin_as_one(a, b) for b in shifted) <= 12
