"""Curves of a page keep their extremes, know their axes, and have a band over seeds."""

import numpy as np
import pytest

from analysis.measure.arms import group_arms
from analysis.measure.rate import measure_rates
from analysis.read.find import read_logs
from analysis.report.curves import curves, mean_curve, thinned
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.mark.parametrize("n", [1, 7, 100, 101, 5000])
def test_thinning_keeps_the_ends_the_least_and_the_largest(n):
    y = np.random.default_rng(n).standard_normal(n)
    kept = thinned(y, 100)
    assert len(kept) <= 100
    assert (np.diff(kept) > 0).all()
    assert {0, n - 1, int(y.argmin()), int(y.argmax())} <= set(kept.tolist())


def test_a_curve_has_at_most_two_thousand_points_and_axes_as_factors(tmp_path):
    folder = generate_run(tmp_path / "run", SyntheticRun(intervals=5000))
    (log,) = read_logs([str(folder)])
    loss = curves(log, most=2000)["loss"]
    assert 1900 <= len(loss["y"]) <= 2000
    assert max(loss["y"]) == pytest.approx(log.column("loss").max(), rel=1e-5)
    assert len(loss["x"]["step"]) == len(loss["x"]["wall"]) == len(loss["y"])
    # 64 images a step, and one rank: these axes are factors of others.
    assert loss["x"]["images"] == ["step", 64.0]
    assert loss["x"]["gpu_hours"] == ["train_s", pytest.approx(1 / 3600)]


def test_the_band_of_an_arm_is_students_interval_of_the_logs_over_its_seeds(tmp_path):
    for seed in range(3):
        generate_run(tmp_path / str(seed), SyntheticRun(seed=seed, intervals=20, loss_noise=0.1))
    logs = read_logs([str(tmp_path)])
    (arm,) = group_arms(measure_rates(logs))
    band = mean_curve(arm, most=100)
    losses = np.log([log.column("loss")[4] for log in logs])
    half = 4.3026527 * losses.std(ddof=1) / np.sqrt(3)
    assert band["y"][4] == pytest.approx(np.exp(losses.mean()), rel=1e-4)
    assert band["high"][4] / band["low"][4] == pytest.approx(np.exp(2 * half), rel=1e-3)
    assert set(band["x"]) == {"step", "images"}


def test_repeats_of_one_seed_have_no_band(tmp_path):
    for repeat in range(3):
        generate_run(tmp_path / str(repeat), SyntheticRun(intervals=20))
    (arm,) = group_arms(measure_rates(read_logs([str(tmp_path)])))
    assert mean_curve(arm, most=100) == {}
