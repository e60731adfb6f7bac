"""Bins of times have no gaps, and losses keep their mean with every time sampler."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

from configs.errors import ConfigError
from configs.load import load
from configs.schema.objective import Objective
from tests.train.data.test_loader import CONFIG, batches, same
from train.diffusion.rng import example_randomness
from train.diffusion.timesteps import Bins, Density, TimeSampler, bin_indices

DENSITIES = {
    "uniform": (Objective(timesteps="uniform"), 1.0),
    "logit-normal": (Objective(logit_mean=-0.5, logit_std=1.2), 1.0),
    "mode": (Objective(timesteps="mode"), 1.0),
    "shifted": (Objective(), 3.0),
}
EDGES = torch.from_numpy(Bins(count=10).edges)


@pytest.fixture(params=DENSITIES)
def density(request: pytest.FixtureRequest) -> Density:
    objective, shift = DENSITIES[request.param]
    return Density(objective=objective, shift=shift)


def test_the_cdf_is_the_inverse_of_the_quantile(density: Density) -> None:
    for u in (0.001, 0.1, 0.5, 0.93, 0.999):
        assert density.cdf(density.quantile(u)) == pytest.approx(u, abs=1e-9)
    assert density.cdf(0.0) == 0
    assert density.cdf(1.0) == 1


def test_bin_weights_are_the_shares_of_times_drawn_in_them(density: Density) -> None:
    drawn_times = [
        example_randomness(0, 0, n, shape=(1,), objective=density.objective, shift=density.shift).t
        for n in range(4000)
    ]
    found = np.histogram(drawn_times, bins=Bins(count=5).edges)[0] / 4000
    weights = Bins(count=5).weights(density)
    assert weights.sum() == pytest.approx(1)
    assert np.abs(found - weights).max() < 4 * np.sqrt(0.25 / 4000)


def test_a_known_density_has_known_bin_weights() -> None:
    weights = Bins(count=10).weights(Density(objective=Objective()))
    inner_edges = [NormalDist().cdf(np.log(k / (10 - k))) for k in range(1, 10)]
    assert np.allclose(weights, np.diff([0, *inner_edges, 1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fault_bins_leave_out_their_edges(dtype: torch.dtype) -> None:
    """The original study C had bins that were open at t = 100, 200, ... of 1,000."""
    steps = torch.arange(1000, dtype=torch.float64)
    found = bin_indices(steps / 1000, EDGES)
    assert torch.equal(found, (steps // 100).long())
    assert torch.equal(torch.bincount(found), torch.full((10,), 100))
    at_ends = bin_indices(torch.tensor([0.0, 1.0, np.nextafter(1, 0)], dtype=dtype), EDGES)
    assert at_ends.tolist() == [0, 9, 9]
    random = torch.rand(10_000, dtype=dtype)
    k, t = bin_indices(random, EDGES), random.double()
    assert bool(((EDGES[k] <= t) & (t < EDGES[k + 1])).all())


def times(objective: Objective, n: int, *, shift: float = 1.0) -> list:
    sampler = TimeSampler(objective, shift=shift, seed=3)
    draws = (
        example_randomness(3, 0, i, shape=(1,), objective=objective, shift=shift) for i in range(n)
    )
    return [sampler.time(one.u, t=one.t, position=i) for i, one in enumerate(draws)]


def test_each_group_has_one_time_of_every_stratum(density: Density) -> None:
    objective = density.objective.model_copy(update={"sampler": "stratified", "strata": 8})
    found = [density.cdf(one.t) for one in times(objective, 64, shift=density.shift)]
    groups = [sorted(int(u * 8) for u in found[k : k + 8]) for k in range(0, 64, 8)]
    assert groups == [list(range(8))] * 8
    assert [int(u * 8) for u in found[:8]] != [int(u * 8) for u in found[8:16]]


def test_bins_get_their_shares_and_loss_weights_undo_them(density: Density) -> None:
    shares = [4.0, 1.0, 2.0, 1.0]
    objective = density.objective.model_copy(update={"sampler": "variance", "bin_shares": shares})
    n = 6000
    found = times(objective, n, shift=density.shift)
    t, weight = np.array([one.t for one in found]), np.array([one.weight for one in found])
    counts = np.histogram(t, bins=Bins(count=4).edges)[0] / n
    assert np.abs(counts - np.array(shares) / 8).max() < 4 * np.sqrt(0.25 / n)
    plain = np.array([density.quantile((k + 0.5) / 4096) for k in range(4096)])
    for f in (np.ones_like, np.square, lambda t: np.sin(9 * t)):
        each = weight * f(t)
        assert abs(each.mean() - f(plain).mean()) < 4 * each.std() / np.sqrt(n)


def test_no_time_is_drawn_from_a_bin_without_density() -> None:
    objective = Objective(sampler="variance", bin_shares=[1.0] * 50, logit_mean=0.0, logit_std=0.05)
    found = times(objective, 300)
    assert all(np.isfinite(one.weight) and 0.3 < one.t < 0.7 for one in found)


@pytest.mark.parametrize(("world", "micro"), [(2, "null"), (1, 4), (2, 2)])
def test_strata_do_not_depend_on_ranks_or_microbatches(world: int, micro: object) -> None:
    keys = {"objective__sampler": "stratified", "objective__strata": 16}
    assert same(
        batches(1, steps=3, **keys), batches(world, steps=3, train__micro_batch=micro, **keys)
    )


def test_time_samplers_change_nothing_but_times() -> None:
    [plain], [other] = batches(1, steps=1), batches(1, steps=1, objective__sampler="stratified")
    assert torch.equal(plain.noise, other.noise)
    assert torch.equal(plain.image, other.image)
    assert not torch.equal(plain.t, other.t)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["objective.sampler=variance"], "go together"),
        (["objective.bin_shares=[1.0, 2.0]"], "go together"),
        (["objective.sampler=variance", "objective.bin_shares=[1.0, 0.0]"], "above 0"),
        (["objective.sampler=stratified", "objective.strata=12"], "does not divide"),
    ],
)
def test_impossible_samplers_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(CONFIG, keys)
