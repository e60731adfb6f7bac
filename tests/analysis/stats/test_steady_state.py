"""The steady rate is right despite warm-up, outliers and pauses."""

import json

import numpy as np
import pytest

from analysis.measure.clocks import intervals
from analysis.measure.speed import measure_rate
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.run_folder import read_ours
from analysis.stats.steady_state import outliers, steady, warmup_end
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, durations, generate_run


def found_rate(truth: SyntheticRun) -> float:
    spent = durations(truth, np.random.default_rng(truth.seed))
    seconds = steady(spent / truth.every, np.zeros(len(spent), dtype=np.int64)).seconds
    return 1 / seconds.value


def worst_error(cases: int, **properties) -> float:
    rates = [
        found_rate(SyntheticRun(seed=seed, steps_per_s=4.0, **properties)) for seed in range(cases)
    ]
    return float(np.quantile(np.abs(np.array(rates) / 4.0 - 1), 0.98))


def test_the_rate_is_within_1_percent_under_outliers_and_warm_up():
    assert worst_error(60, intervals=500, cv=0.03, outliers=0.2, warmup=0.3) < 0.01


@pytest.mark.long
@pytest.mark.parametrize("slower", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_the_rate_is_within_1_percent_for_any_warm_up(slower, rho):
    properties = {"outliers": 0.2, "warmup": 0.3, "warmup_slower": slower, "rho": rho}
    assert worst_error(1000, intervals=500, cv=0.03, **properties) < 0.01


def mild_coverage(cases: int, *, cv: float, rho: float, warmup: float) -> float:
    """Return how often the interval holds the rate if a fifth takes 1.1 to 1.2 times as long."""
    held = 0
    for seed in range(cases):
        truth = SyntheticRun(
            seed=seed, intervals=500, cv=cv, rho=rho, warmup=warmup, outliers=0.2,
            outliers_slower=(1.1, 1.2), steps_per_s=4.0,
        )  # fmt: skip
        spent = durations(truth, np.random.default_rng(seed)) / truth.every
        found = steady(spent, np.zeros(len(spent), dtype=np.int64)).seconds
        held += found.low <= 0.25 <= found.high
    return held / cases


def test_many_mild_outliers_neither_shift_the_rate_nor_narrow_its_interval():
    assert mild_coverage(150, cv=0.03, rho=0.1, warmup=0.3) >= 0.85


@pytest.mark.long
@pytest.mark.parametrize("cv", [0.01, 0.02, 0.03])
@pytest.mark.parametrize(("rho", "warmup"), [(0.0, 0.0), (0.3, 0.3)])
def test_intervals_with_many_mild_outliers_cover_the_truth_in_90_percent(cv, rho, warmup):
    assert mild_coverage(1000, cv=cv, rho=rho, warmup=warmup) >= 0.90


def test_skewed_noise_is_not_mistaken_for_outliers():
    rng = np.random.default_rng(0)
    runs = 1 + 0.03 * rng.gamma(4, 1, (50, 500))
    found = [steady(seconds, np.zeros(500, dtype=np.int64)) for seconds in runs]
    assert np.mean([one.outliers for one in found]) < 10
    middle = np.mean([one.seconds.value for one in found])
    assert middle == pytest.approx(1 + 0.03 * 3.672, rel=0.003)


def test_few_intervals_of_plain_noise_are_rarely_called_outliers():
    rng = np.random.default_rng(0)
    for n in (12, 29, 60):
        shares = [outliers(np.exp(0.05 * rng.standard_normal(n))).mean() for _ in range(500)]
        assert np.mean(np.array(shares) > 0.1) < 0.04, n


def test_half_of_a_run_is_never_an_outlier():
    """The durations are those of a real run whose fastest ones lie close together."""
    durations = """
        1330 1447 1331 1393 1339 1254 1334 1444 1352 1301 1391 1282 1388 1504 1330
        1356 1460 1290 1433 1300 1333 1421 1463 1495 1428 1438 1374 1304 1332
    """
    assert outliers(np.array(durations.split(), dtype=float) / 10_000).mean() < 0.1


def test_warm_up_is_cut_at_its_end():
    rng = np.random.default_rng(0)
    seconds = np.exp(0.02 * rng.standard_normal(200))
    seconds[:40] *= 1.5
    assert 40 <= warmup_end(seconds) <= 55


def test_a_compile_and_a_slow_plateau_after_it_are_both_cut():
    rng = np.random.default_rng(0)
    seconds = np.exp(0.02 * rng.standard_normal(200))
    seconds[:30] *= 1.2
    seconds[0] *= 300
    assert 30 <= warmup_end(seconds) <= 45


def test_a_steady_series_is_rarely_cut():
    rng = np.random.default_rng(0)
    cut = [warmup_end(np.exp(0.02 * rng.standard_normal(300))) > 0 for _ in range(200)]
    assert np.mean(cut) < 0.03


def test_series_without_noise_have_neither_warm_up_nor_outliers():
    seconds = np.full(50, 0.25)
    assert warmup_end(seconds) == 0
    assert not outliers(seconds).any()


def test_an_interval_with_a_save_counts_on_the_train_clock_but_not_on_the_wall_clock(tmp_path):
    log = read_ours(
        RunFolder(generate_run(tmp_path / "a", SyntheticRun(save_every=10, intervals=100)))
    )
    train, wall = intervals(log, clock="train"), intervals(log, clock="wall")
    assert (train.left_out, wall.left_out) == (0, 9)
    assert np.median(wall.seconds) == pytest.approx(np.median(train.seconds), rel=0.01)


def test_the_compute_clock_excludes_waits_for_data(tmp_path):
    log = read_ours(RunFolder(generate_run(tmp_path / "a", SyntheticRun(data=0.25))))
    train, compute = (
        measure_rate(log, clock=clock).steps_per_s.value for clock in ("train", "compute")
    )
    assert train / compute == pytest.approx(0.75, rel=1e-3)


def test_no_interval_spans_a_resume(tmp_path):
    log = read_ours(
        RunFolder(generate_run(tmp_path / "a", SyntheticRun(resume_at=50, intervals=100)))
    )
    found = intervals(log, clock="train")
    assert list(np.unique(found.attempt)) == [1, 2]
    assert len(found.seconds) == 98


def test_an_attempt_on_another_machine_is_left_out_of_the_rate(tmp_path):
    run = generate_run(tmp_path / "a", SyntheticRun(resume_at=50, intervals=100))
    (run / "attempts" / "002").mkdir()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["attempts"][0]["ranks"] = 2
    (run / "manifest.json").write_text(json.dumps(manifest))
    log = read_ours(RunFolder(run))
    assert set(intervals(log, clock="train").attempt) == {2}
    assert "attempt 1 is left out of the rate: the last one differs in ranks" in log.remarks[0]


def test_an_attempt_with_another_micro_batch_is_left_out_of_the_rate(tmp_path):
    run = generate_run(tmp_path / "a", SyntheticRun(resume_at=50, intervals=100))
    (run / "attempts" / "002").mkdir()
    (run / "attempts" / "002" / "overrides.yaml").write_text("train: {micro_batch: 8}\n")
    assert set(intervals(read_ours(RunFolder(run)), clock="train").attempt) == {2}


def test_the_time_breakdown_of_a_resumed_run_covers_every_second(tmp_path):
    truth = SyntheticRun(resume_at=50, intervals=100, save_every=20, lost_intervals=5, cv=1e-9)
    found = time_breakdown(read_ours(RunFolder(generate_run(tmp_path / "a", truth))))
    per_interval = truth.every / truth.steps_per_s
    assert found.seconds["queue"] == pytest.approx(60)
    assert found.seconds["setup"] == pytest.approx(40)
    assert found.seconds["lost"] == pytest.approx(5 * per_interval, rel=1e-3)
    assert found.seconds["between"] == pytest.approx(30, rel=1e-3)
    trained = found.seconds["train"] + found.seconds["data"]
    assert trained == pytest.approx(100 * per_interval, rel=0.02)
    spent = sum(value for name, value in found.seconds.items() if name != "queue")
    assert spent == pytest.approx(found.wall_s, rel=1e-6)


def test_an_evaluation_after_the_end_is_not_time_of_the_run(tmp_path):
    folder = generate_run(tmp_path / "a", SyntheticRun())
    before = time_breakdown(read_ours(RunFolder(folder)))
    last = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-1]
    later = {"time": last["time"] + 3600, "attempt": last["attempt"]}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(later | {"step": 2000, "images": 128000, "recognised": 0.9}) + "\n")
        file.write(json.dumps(later | {"event": "evaluated", "step": 2000}) + "\n")
    after = time_breakdown(read_ours(RunFolder(folder)))
    assert before is not None
    assert after is not None
    assert after.wall_s == before.wall_s
