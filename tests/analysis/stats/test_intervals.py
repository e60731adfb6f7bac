"""Printed digits tell their resolution, and earlier repeats how many more are needed."""

import numpy as np
import pytest

from analysis.stats.contrast import welch
from analysis.stats.intervals import decimal_grid, seeds_needed


@pytest.mark.parametrize("exponent", [-3, -2, 0])
def test_the_grid_of_printed_readings_is_found(exponent):
    readings = np.random.default_rng(0).integers(10, 10_000, 200) * 10.0**exponent
    assert decimal_grid(readings) == pytest.approx(10.0**exponent)
    assert decimal_grid(readings + 1.7e9) in (None, pytest.approx(10.0**exponent))


def test_measured_readings_have_no_grid():
    assert decimal_grid(np.random.default_rng(0).random(50).cumsum()) is None


@pytest.mark.parametrize("ratio", [1.05, 0.9])
def test_the_seeds_that_are_said_to_be_needed_show_the_ratio_in_80_percent_of_studies(ratio):
    earlier = [np.array([0.0, 0.03, -0.03]), np.array([2.0, 2.03, 1.97])]
    rng, needed = np.random.default_rng(0), seeds_needed(earlier, ratio=ratio)

    def power(seeds: int) -> float:
        draws = rng.normal([0, np.log(ratio)], 0.03, (1000, seeds, 2))
        return float(np.mean([welch(two[:, 0], two[:, 1]).p_value() < 0.05 for two in draws]))

    assert power(needed) > 0.75
    assert power(needed - 1) < 0.83
    assert seeds_needed([np.zeros(3), np.ones(3)], ratio=ratio) == 2
    assert seeds_needed(earlier, ratio=1.0001) is None
