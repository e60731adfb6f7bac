"""Bins of times hold the shares of the density."""

from statistics import NormalDist

import numpy as np
import pytest

from configs.schema.objective import Objective
from train.diffusion.rng import example_randomness
from train.diffusion.timesteps import Bins, Density

DENSITIES = {
    "uniform": Objective(timesteps="uniform"),
    "logit-normal": Objective(logit_mean=-0.5, logit_std=1.2),
}


@pytest.fixture(params=DENSITIES)
def density(request: pytest.FixtureRequest) -> Density:
    return Density(objective=DENSITIES[request.param])


def test_the_cdf_is_the_inverse_of_the_quantile(density: Density) -> None:
    for u in (0.001, 0.1, 0.5, 0.93, 0.999):
        assert density.cdf(density.quantile(u)) == pytest.approx(u, abs=1e-9)
    assert density.cdf(0.0) == 0
    assert density.cdf(1.0) == 1


def test_bin_weights_are_the_shares_of_times_drawn_in_them(density: Density) -> None:
    drawn_times = [
        example_randomness(0, 0, n, shape=(1,), objective=density.objective).t for n in range(4000)
    ]
    found = np.histogram(drawn_times, bins=Bins(count=5).edges)[0] / 4000
    weights = Bins(count=5).weights(density)
    assert weights.sum() == pytest.approx(1)
    assert np.abs(found - weights).max() < 4 * np.sqrt(0.25 / 4000)


def test_a_known_density_has_known_bin_weights() -> None:
    weights = Bins(count=10).weights(Density(objective=Objective()))
    inner_edges = [NormalDist().cdf(np.log(k / (10 - k))) for k in range(1, 10)]
    assert np.allclose(weights, np.diff([0, *inner_edges, 1]))
