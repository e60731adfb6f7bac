"""A run is summarised by what it did: its mean after warm-up, with an interval that holds it."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analysis.measure.clocks import intervals
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.run_folder import read_ours
from analysis.stats.intervals import Floats
from analysis.stats.mean import autocorrelation_time, independent
from analysis.stats.summary import Summary, lasting_change, ratio_of_means, summarise, warmup_end
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, ar1_noise, generate_run

Rng = np.random.Generator
Draw = Callable[[Rng], tuple[Floats, float]]


def summarised(seconds: Floats, segment: Any) -> Summary:
    """Return the summary of intervals of one step each."""
    return summarise(seconds, segment, steps=np.ones(len(seconds)))


def coverage(draw: Draw, cases: int) -> float:
    """Return how often the interval holds the true mean; no interval is not wrong."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(cases):
        seconds, true = draw(rng)
        found = summarised(seconds, np.zeros(len(seconds), dtype=np.int64)).seconds
        held += found.low is None or found.low <= true <= found.high
    return held / cases


def correlated(n: int, rho: float) -> Draw:
    return lambda rng: (1 + 0.03 * ar1_noise(rng, n, rho=rho), 1.0)


def two_speeds(n: int, *, stay: float) -> Draw:
    """Thirty percent of the steps take 1.25 times as long, in stretches of 1 / (1 - stay)."""

    def draw(rng: Rng) -> tuple[Floats, float]:
        slow = np.zeros(n, dtype=bool)
        slow[0] = rng.random() < 0.3
        for place in range(1, n):
            stays = stay if slow[place - 1] else (1 - stay) * 0.3 / 0.7
            slow[place] = rng.random() < stays
        return np.where(slow, 1.25, 1.0) * (1 + 0.02 * rng.standard_normal(n)), 1.075

    return draw


def pauses(n: int, period: int) -> Draw:
    def draw(rng: Rng) -> tuple[Floats, float]:
        seconds = 1 + 0.02 * rng.standard_normal(n)
        seconds[period - 1 :: period] *= 3
        return seconds, 1 + 2 / period

    return draw


def throttled(rng: Rng) -> tuple[Floats, float]:
    seconds = 1 + 0.02 * rng.standard_normal(200)
    seconds[140:] *= 1.2
    return seconds, 1.06


CLASSES = {
    **{f"white, {n}": correlated(n, 0.0) for n in (15, 30, 200)},
    **{f"AR .5, {n}": correlated(n, 0.5) for n in (15, 30, 200)},
    **{f"AR .9, {n}": correlated(n, 0.9) for n in (60, 200)},
    "two speeds": two_speeds(200, stay=0.3),
    "sticky speeds": two_speeds(200, stay=0.85),
    "a pause each 20th": pauses(100, 20),
    "a pause each 10th": pauses(100, 10),
    "throttled": throttled,
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_interval_of_the_mean_holds_it(name):
    assert coverage(CLASSES[name], 150) >= 0.90


def test_a_pause_counts_and_its_share_is_told():
    seconds, true = pauses(100, 20)(np.random.default_rng(0))
    found = summarised(seconds, np.zeros(100, dtype=np.int64))
    assert found.seconds.value == pytest.approx(true, rel=0.01)
    assert found.slow_share == pytest.approx(0.15 / 1.1, rel=0.05)


def test_a_lasting_change_of_speed_is_found_at_its_step_and_widens_the_interval():
    seconds, true = throttled(np.random.default_rng(0))
    found = summarised(seconds, np.zeros(200, dtype=np.int64))
    assert found.change.index == pytest.approx(140, abs=2)
    assert found.change.ratio == pytest.approx(1.2, rel=0.02)
    assert found.seconds.low < 0.9 * true


def test_two_levels_that_alternate_at_random_are_no_lasting_change():
    rng = np.random.default_rng(0)
    drawn = (np.where(rng.random(80) < 0.5, 0.0, 0.26) for _ in range(40))
    found = [lasting_change(levels + 0.01 * rng.standard_normal(80)) for levels in drawn]
    assert sum(one is not None for one in found) <= 2


def test_one_stray_interval_counts_and_widens_the_interval():
    seconds = 1 + 0.01 * np.random.default_rng(0).standard_normal(100)
    seconds[50] = 30
    found = summarised(seconds, np.zeros(100, dtype=np.int64)).seconds
    assert found.value == pytest.approx(1.29, rel=0.01)
    assert found.low < 1 < 1.5 < found.high


def test_a_slow_head_that_comes_again_is_no_warm_up():
    seconds = 1 + 0.01 * np.random.default_rng(0).standard_normal(200)
    seconds[:30] *= 1.2
    assert 30 <= warmup_end(seconds) <= 45
    seconds[120:140] *= 1.2
    assert warmup_end(seconds) == 0


def test_pauses_at_the_same_steps_cancel_in_a_ratio_of_means():
    rng = np.random.default_rng(0)
    slow, fast = (1 + 0.01 * rng.standard_normal((2, 60))) * np.array([[1.833], [1.0]])
    for run, scale in ((slow, 1.833), (fast, 1.0)):
        run[3::5] += 2 * scale
    found = ratio_of_means(slow, fast, weights=np.ones(len(slow))).estimate()
    assert found.low < np.log(1.833) < found.high

    assert found.high - found.low < 0.011


def test_intervals_of_unequal_steps_count_by_their_steps():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(200):
        # A fast and a slow half, logged at equal times.
        each = np.where(np.arange(120) % 60 < 30, 0.02, 0.1) * np.exp(
            0.05 * rng.standard_normal(120)
        )
        steps = np.round(5 / each)
        found = summarise(5 / steps, np.zeros(120, dtype=np.int64), steps=steps).seconds
        held.append(found.low <= 120 * 5 / steps.sum() <= found.high)
        assert found.value == pytest.approx(120 * 5 / steps.sum(), rel=0.02)
    assert np.mean(held) == 1
    paired = ratio_of_means(2 * 5 / steps, 5 / steps, weights=steps).estimate()
    assert paired.value == pytest.approx(np.log(2))


@pytest.mark.parametrize(("rho", "least", "most"), [(0.0, 24, 30), (0.5, 5, 14)])
def test_a_short_series_counts_as_many_values_as_are_independent(rho, least, most):
    rng = np.random.default_rng(3)
    counts = [independent(ar1_noise(rng, 30, rho=rho))[1] for _ in range(200)]
    assert least < np.mean(counts) < most


def test_autocorrelation_time_is_that_of_the_process():
    rng = np.random.default_rng(2)
    for rho in (0.0, 0.3, 0.6):
        found = np.mean([autocorrelation_time(ar1_noise(rng, 2000, rho=rho)) for _ in range(20)])
        assert found == pytest.approx((1 + rho) / (1 - rho), rel=0.15)


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


def test_an_interval_with_a_save_counts_on_the_train_clock_but_not_on_the_wall_clock(tmp_path):
    log = read_ours(
        RunFolder(generate_run(tmp_path / "a", SyntheticRun(save_every=10, intervals=100)))
    )
    train, wall = intervals(log, clock="train"), intervals(log, clock="wall")
    assert (train.left_out, wall.left_out) == (0, 9)
    assert np.median(wall.seconds) == pytest.approx(np.median(train.seconds), rel=0.01)


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
