"""Printed digits tell their resolution."""

import numpy as np
import pytest

from analysis.stats.intervals import decimal_grid


@pytest.mark.parametrize("exponent", [-3, -2, 0])
def test_the_grid_of_printed_readings_is_found(exponent):
    readings = np.random.default_rng(0).integers(10, 10_000, 200) * 10.0**exponent
    assert decimal_grid(readings) == pytest.approx(10.0**exponent)
    assert decimal_grid(readings + 1.7e9) in (None, pytest.approx(10.0**exponent))


def test_measured_readings_have_no_grid():
    assert decimal_grid(np.random.default_rng(0).random(50).cumsum()) is None
