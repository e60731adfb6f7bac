"""`target --critical-batch` finds the size of published points and of runs to a target."""

import numpy as np
import pytest

from analysis.stats.critical_batch import fit_critical_batch
from tests.analysis.commands.test_target import B_CRIT, E_MIN, truth

# The means of MLPerf's reference convergence points of FLUX.1, in 1e6 samples by global batch.
MEANS = {512: 7.235, 1024: 8.493, 2048: 10.355, 4096: 15.349}


TARGET = ("target", "--critical-batch", "--target", "loss<=0.25")


def test_means_of_several_batches_give_it_within_an_interval():
    found = fit_critical_batch({b: np.array([mean]) for b, mean in MEANS.items()})
    assert found.b_crit.value == pytest.approx(2711, rel=0.02)
    assert found.b_crit.low < 2616 < 2817 < found.b_crit.high


def test_two_batches_run_once_have_no_interval(tmp_path, plant, said):
    plant(**{str(batch): truth(batch) for batch in (64, 256)})
    _, found, err = said(*TARGET, tmp_path)
    assert found.keys() == {"b_crit", "e_min"}
    assert "no interval: two batches, each run once" in err


@pytest.mark.parametrize("batches", [3, 5])
def test_the_interval_of_batches_run_once_covers_it(batches):
    rng, trials = np.random.default_rng(batches), 300
    sizes = 256 * 2 ** np.arange(batches)
    covered = 0
    for _ in range(trials):
        samples = E_MIN * (1 + sizes / 1000) * (1 + 0.02 * rng.standard_normal(batches))
        found = fit_critical_batch(
            {int(b): np.array([n]) for b, n in zip(sizes, samples, strict=True)}
        )
        low, high = found.b_crit.low, found.b_crit.high
        covered += low is None or (low <= 1000 and (high is None or high >= 1000))
    assert 0.91 <= covered / trials <= 0.99


@pytest.mark.parametrize(("exponent", "most"), [(0.7, 0.15), (1.4, 0.05)])
def test_samples_that_rise_along_no_line_are_refused(exponent, most):
    rng, trials = np.random.default_rng(0), 100
    sizes = 32 * 2 ** np.arange(5)
    answered = 0
    for _ in range(trials):
        samples = E_MIN * (1 + (sizes[:, None] / 200) ** exponent)
        each = samples * (1 + 0.03 * rng.standard_normal((5, 2)))
        answered += fit_critical_batch(dict(zip(sizes.tolist(), each, strict=True))).is_line
    assert answered <= most * trials


def test_runs_to_a_target_give_what_was_planted(tmp_path, plant, said):
    plant(**{f"{b}-{seed}": truth(b, seed=seed) for b in (64, 256) for seed in range(3)})
    plant(late=truth(64, target=1.0, seed=9))
    code, found, err = said(*TARGET, tmp_path)
    assert code == 0
    assert found["b_crit_low"] <= B_CRIT <= found["b_crit_high"]
    assert found["e_min"] == pytest.approx(E_MIN, rel=0.1)
    assert "left out: late never reached loss<=0.25" in err


def test_one_batch_is_undetermined_and_exits_1(tmp_path, plant, said):
    plant(**{str(seed): truth(64, seed=seed) for seed in range(2)})
    code, found, err = said(*TARGET, tmp_path)
    assert (code, found) == (1, {})
    assert "undetermined" in err
