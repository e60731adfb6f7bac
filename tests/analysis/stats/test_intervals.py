"""Intervals cover the true value as often as they claim."""

import numpy as np
import pytest

from analysis.stats.intervals import (
    autocorrelation_time,
    decimal_grid,
    mean_interval,
    median_interval,
    ratio_interval,
    repeats_ratio,
    seeds_needed,
)
from tests.analysis.synthetic_runs import ar1_noise


def coverage(cases: int, n: int, rho: float, *, interval, seed: int = 0) -> float:
    rng = np.random.default_rng(seed)
    found = [interval(1 + 0.03 * ar1_noise(rng, n, rho=rho)) for _ in range(cases)]
    return float(np.mean([one.low is not None and one.low <= 1 <= one.high for one in found]))


@pytest.mark.parametrize("interval", [median_interval, mean_interval])
def test_intervals_cover_the_truth_in_a_small_sample(interval):
    assert 0.90 <= coverage(300, 500, 0.3, interval=interval) <= 0.99
    assert coverage(300, 200, 0.5, interval=interval) >= 0.88


@pytest.mark.long
@pytest.mark.parametrize("interval", [median_interval, mean_interval])
@pytest.mark.parametrize(("n", "rho"), [(500, 0.0), (500, 0.3), (1000, 0.15), (3000, 0.3)])
def test_95_percent_intervals_cover_the_truth_in_93_to_97_percent(interval, n, rho):
    assert 0.93 <= coverage(2000, n, rho, interval=interval) <= 0.97


@pytest.mark.long
@pytest.mark.parametrize("interval", [median_interval, mean_interval])
def test_short_series_of_autocorrelation_0_5_are_covered_in_90_percent(interval):
    assert coverage(2000, 200, 0.5, interval=interval) >= 0.90


@pytest.mark.long
def test_the_interval_of_a_ratio_covers_the_truth():
    rng = np.random.default_rng(1)

    def covers() -> bool:
        a, b = (median_interval(1 + 0.03 * ar1_noise(rng, 500, rho=0.3)) for _ in "ab")
        found = ratio_interval(a, b)
        return found.low <= 1 <= found.high

    assert 0.93 <= np.mean([covers() for _ in range(2000)]) <= 0.97


def test_autocorrelation_time_is_that_of_the_process():
    rng = np.random.default_rng(2)
    for rho in (0.0, 0.3, 0.6):
        found = np.mean([autocorrelation_time(ar1_noise(rng, 2000, rho=rho)) for _ in range(20)])
        assert found == pytest.approx((1 + rho) / (1 - rho), rel=0.15)


def test_few_values_have_no_interval():
    assert median_interval(np.arange(1.0, 6.0)).low is None
    assert mean_interval(np.arange(1.0, 6.0)).low is None


def test_the_interval_of_a_drifting_series_is_its_range_but_for_one_value_at_each_end():
    series = np.linspace(1, 2, 200)
    found = median_interval(series)
    assert (found.low, found.high) == pytest.approx((series[1], series[-2]))


def test_one_stray_value_does_not_decide_the_interval_of_a_drifting_series():
    series = np.linspace(0.235, 0.24, 48)
    series[0] = 0.0956
    found = median_interval(series)
    assert found.low > 0.23


@pytest.mark.parametrize("exponent", [-3, -2, 0])
def test_the_grid_of_printed_readings_is_found(exponent):
    readings = np.random.default_rng(0).integers(10, 10_000, 200) * 10.0**exponent
    assert decimal_grid(readings) == pytest.approx(10.0**exponent)
    assert decimal_grid(readings + 1.7e9) in (None, pytest.approx(10.0**exponent))


def test_measured_readings_have_no_grid():
    assert decimal_grid(np.random.default_rng(0).random(50).cumsum()) is None


def test_a_drifting_difference_is_not_noise():
    rng = np.random.default_rng(3)
    drift = np.linspace(0.02, 0.06, 300)
    found = mean_interval(drift + 0.001 * rng.standard_normal(300))
    assert found.low <= 0.04 <= found.high
    assert found.high - found.low < 0.001


def regressions_found(pairs: int, *, slower: float, seed: int) -> float:
    rng = np.random.default_rng(seed)

    def is_found() -> bool:
        base, other = np.exp(0.01 * rng.standard_normal((2, 5)))
        found = repeats_ratio(other / (1 + slower), base)
        return found.high < 1

    return float(np.mean([is_found() for _ in range(pairs)]))


def test_five_runs_per_arm_find_a_3_percent_regression_and_rarely_a_false_one():
    assert regressions_found(400, slower=0.03, seed=4) >= 0.9
    assert regressions_found(400, slower=0.0, seed=5) <= 0.05


def test_repeats_have_an_interval_against_a_single_run_and_two_single_runs_have_none():
    assert repeats_ratio(np.array([2.0]), np.array([1.0, 1.01, 0.99])).low is not None
    assert repeats_ratio(np.array([2.0]), np.array([1.0])).low is None


@pytest.mark.parametrize("ratio", [1.05, 0.9])
def test_the_seeds_that_are_said_to_be_needed_show_the_ratio_in_80_percent_of_studies(ratio):
    earlier = [np.array([0.0, 0.03, -0.03]), np.array([2.0, 2.03, 1.97])]
    rng, needed = np.random.default_rng(0), seeds_needed(earlier, ratio=ratio)

    def power(seeds: int) -> float:
        draws = np.exp(rng.normal([0, np.log(ratio)], 0.03, (1000, seeds, 2)))
        found = [repeats_ratio(two[:, 1], two[:, 0]) for two in draws]
        return float(np.mean([not one.low <= 1 <= one.high for one in found]))

    assert power(needed) > 0.77
    assert power(needed - 1) < 0.83
    assert seeds_needed([np.zeros(3), np.ones(3)], ratio=ratio) == 2
    assert seeds_needed(earlier, ratio=1.0001) is None
