"""Speedups of logs whose clocks have a grid, whose rates are rounded, or whose batches differ."""

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.measure.arms import Arm
from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.rate import measure_rate, measure_rates
from analysis.measure.speed import SPEED, speed_contrast
from analysis.read.find import read_logs
from analysis.verdict import Comparison, ratio_text, verdicts
from tests.analysis.foreign_logs import log_of


def compared(a, b, clock):
    """Return the fields of the verdict on b against a, each a single run."""
    arms = [Arm(runs=(run,)) for run in measure_rates([a, b], clock=clock)]
    contrast = speed_contrast(*arms)
    return verdicts([Comparison(base="a", arm="b", quantity=SPEED, contrast=contrast)])[0]


def clock_log(step_s, *, grid, noise=0.0, count=400, seed=0):
    seconds = step_s * (1 + noise * np.random.default_rng(seed).standard_normal(count))
    return log_of({"elapsed_s": np.floor(seconds.cumsum() / grid) * grid})


@pytest.mark.parametrize("step_s", [0.12356, 0.0473, 0.9971])
@pytest.mark.parametrize("grid", [0.001, 0.01, 1.0])
def test_a_clock_with_a_grid_gives_an_interval_that_holds_the_rate(step_s, grid):
    held = 0
    for seed in range(20):
        log = clock_log(step_s, grid=grid, noise=0.003, count=4000, seed=seed)
        rate = measure_rate(log, clock="wall").rate
        held += rate.low is None or rate.low <= 1 / step_s <= rate.high
        assert rate.low is None or rate.high / rate.low < 1.1
    assert held >= 17


@pytest.mark.parametrize("step_s", [0.0446, 0.0399, 0.0354])
def test_rounded_step_times_leave_the_rounding_in_the_interval(step_s):
    log = log_of({"step_s": np.full(200, round(step_s, 2))})
    rate = measure_rate(log, clock="printed").rate
    assert rate.low <= 1 / step_s <= rate.high


def test_rounded_rates_leave_the_rounding_in_the_interval():
    rate = measure_rate(log_of({"steps_per_s": np.full(200, 1.09)}), clock="printed").rate
    assert rate.low == pytest.approx(1.085, abs=1e-3)
    assert rate.high == pytest.approx(1.095, abs=1e-3)


def test_logs_that_name_different_batches_are_compared_in_images():
    rng = np.random.default_rng(1)
    small = log_of({"elapsed_s": 0.1 * rng.uniform(0.99, 1.01, 300).cumsum()})
    large = log_of(
        {"elapsed_s": 1.0 * rng.uniform(0.99, 1.01, 300).cumsum()}, facts={"global_batch_size": 80}
    )
    small = log_of({"elapsed_s": small.values["elapsed_s"], "batch": np.full(300, 4.0)})
    found = compared(small, large, "wall")
    assert found["ratio"] == pytest.approx(2.0, rel=0.02)
    assert found["word"] == "different"


def test_logs_that_print_only_images_per_second_are_compared_in_images(tmp_path):
    for name, rate in (("a", 120.0), ("b", 150.0)):
        rows = [f"step {n}: loss: {5 / n:.4f}, images/sec: {rate + n % 5}" for n in range(1, 90)]
        (tmp_path / name).write_text("\n".join(rows))
    runs = measure_rates(read_logs([str(tmp_path / name) for name in "ab"]))
    assert runs[0].images_per_s == pytest.approx(122, abs=1)
    found = speed_contrast(*(Arm(runs=(run,)) for run in runs))
    assert math.exp(found.mean.value) == pytest.approx(152 / 122, abs=0.01)


@pytest.mark.parametrize(("line", "word"), [
    ("[2026-01-02 03:{m:02.0f}:{s:06.3f}] step {n} loss {x:.4f} throughput {t:.1f} img/s",
     "different"),
    ("step {n} | loss {x:.4f} | {ms:.2f}ms/step | {t:.0f} tok/s", "not compared"),
])  # fmt: skip
def test_logs_that_print_the_throughput_of_all_gpus_are_compared_in_no_steps(tmp_path, line, word):
    """One GPU and four with a batch each; a step of four takes a tenth longer."""
    paths = []
    for gpus, step_s in ((1, 0.25), (4, 0.275)):
        rng, now, lines = np.random.default_rng(gpus), 10.0, []
        for n in range(10, 2001, 10):
            spent = 10 * step_s * (1 + 0.02 * rng.standard_normal())
            now += spent
            lines.append(
                line.format(
                    m=now // 60, s=now % 60, n=n, x=5 / n, ms=100 * spent, t=gpus * 6400 / spent
                )
            )
        paths.append(tmp_path / f"run_{gpus}gpu.log")
        paths[-1].write_text("\n".join(lines) + "\n")
    logs = read_logs([str(path) for path in paths])
    found = compared(*logs, None)
    assert found["word"] == word
    assert word != "different" or found["low"] <= 4 / 1.1 <= found["high"]
    assert "throughput" in loss_contrast(logs[:1], logs[1:], Compared()).why


def test_images_per_second_of_one_gpu_are_not_those_of_the_run(tmp_path):
    rows = [f"step {n}: loss: {5 / n:.4f}, images_per_second_per_gpu: 128.1" for n in range(1, 90)]
    (tmp_path / "log").write_text("\n".join(rows))
    [run] = measure_rates(read_logs([str(tmp_path / "log")]))
    assert run.images_per_s is None


def test_samples_are_not_compared_with_steps():
    rng = np.random.default_rng(1)
    values = {"elapsed_s": rng.uniform(0.99, 1.01, 300).cumsum()}
    found = compared(log_of(values), log_of(values, axis="sample"), "wall")
    assert (found["word"], found["ratio"]) == ("not compared", None)
    assert found["why"] == "samples against steps"


def test_records_that_count_nothing_known_are_no_common_axis():
    seconds = np.random.default_rng(1).uniform(0.99, 1.01, 300)
    logs = [log_of({"elapsed_s": k * seconds.cumsum()}, axis="unit") for k in (1, 2)]
    found = compared(*logs, "wall")
    assert (found["word"], found["ratio"]) == ("not compared", None)
    assert found["why"] == "their logs do not say what their records count"


def test_steps_of_another_batch_without_images_are_not_compared():
    seconds = np.random.default_rng(1).uniform(0.99, 1.01, 300).cumsum()
    logs = [replace(log_of({"elapsed_s": seconds}), config={"batch_size": b}) for b in (64, 128)]
    assert compared(*logs, "wall")["why"].startswith(
        "steps of another batch (batch_size: 64 -> 128)"
    )
    assert compared(logs[0], logs[0], "wall")["word"] != "not compared"


def test_two_logs_of_the_same_steps_are_paired_by_step_and_what_they_share_cancels():
    """As two GPUs with a record each 100 steps and samples each 250."""
    rng, n = np.random.default_rng(2), 20
    pause = (np.arange(n) % 5 == 2) | (np.arange(n) % 5 == 4)
    shared = 1 + 0.3 * pause
    logs = [
        log_of({"elapsed_s": scale * (shared * (1 + 0.004 * rng.standard_normal(n))).cumsum()})
        for scale in (183.3, 100.0)
    ]
    found = compared(*logs, "wall")
    assert (found["word"], found["unit"]) == ("different", "step")
    assert found["ratio"] == pytest.approx(1.833, rel=0.005)
    assert found["high"] / found["low"] < 1.02
    apart = [measure_rate(log, clock="wall").seconds for log in logs]
    assert math.hypot(*(one.error / one.value for one in apart)) > 0.03


def recorded_each(every, seconds):
    """Return a log of the time after each so many of the steps that took these seconds."""
    step = np.arange(every, len(seconds) + 1, every)
    return log_of({"elapsed_s": seconds.cumsum()[step - 1]}, steps=step)


@pytest.mark.parametrize("every", [50, 100, 250])
def test_a_warm_up_that_few_records_do_not_show_is_cut_of_both(every):
    rng = np.random.default_rng(5)
    arms = []
    for each in (10, every):
        logs = []
        for _ in range(3):
            seconds = 0.25 * (1 + 0.05 * rng.standard_normal(2000)) * (1 + rng.normal(0, 0.003))
            seconds[:400] *= 1.5
            logs.append(measure_rate(recorded_each(each, seconds), clock="wall"))
        arms.append(Arm(runs=tuple(logs)))
    assert abs(speed_contrast(*arms).mean.value) < 0.015


def test_a_pause_of_all_runs_counts_in_all_although_some_left_it_out():
    """One arm evaluates where both save, and no log says that they save."""
    rng, arms = np.random.default_rng(6), []
    for evaluates in (True, False):
        runs = []
        for _ in range(3):
            seconds = 25 * (1 + 0.01 * rng.standard_normal(80))
            seconds[9::10] += 20 + 10 * evaluates
            values = {"elapsed_s": seconds.cumsum()}
            if evaluates:
                values["evaluated"] = np.arange(1, 81) // 10
            runs.append(measure_rate(log_of(values), clock="wall"))
        arms.append(Arm(runs=tuple(runs)))
    assert abs(speed_contrast(*arms).mean.value) < 0.01


def test_one_jump_of_a_clock_makes_no_run_slower():
    rng = np.random.default_rng(7)
    steady, jumps = 2.5 * (1 + 0.02 * rng.standard_normal((2, 200)))
    jumps[120] += 3600
    found = compared(*(log_of({"elapsed_s": one.cumsum()}) for one in (steady, jumps)), "wall")
    assert found["word"] == "undetermined"


def test_a_run_that_slows_down_for_good_has_its_rate_in_the_interval_and_says_so():
    rng = np.random.default_rng(3)
    a, b = (0.1 * (1 + 0.01 * rng.standard_normal(200)) for _ in "ab")
    b[140:] *= 1.2
    found = compared(*(log_of({"elapsed_s": one.cumsum()}) for one in (a, b)), "wall")
    assert found["low"] < 1 / 1.06 < found["high"]
    assert "slower from step" in found["verdict"]


def test_runs_of_which_one_pauses_too_much_for_a_rate_are_not_told_apart():
    rng = np.random.default_rng(4)
    a, b = (0.1 * (1 + 0.02 * rng.standard_normal(500)) for _ in "ab")
    a[25::25] += 9
    logs = [log_of({"elapsed_s": one.cumsum()}) for one in (a, b)]
    assert "wanders" in measure_rate(logs[0], clock="wall").why_undetermined
    assert compared(*logs, "wall")["word"] == "undetermined"


@pytest.mark.parametrize(("evaluates", "is_known"), [(True, True), (False, False)])
def test_a_slow_step_of_which_the_time_is_printed_does_not_stand_for_ten(evaluates, is_known):
    seconds = 0.1 * (1 + 0.02 * np.random.default_rng(5).standard_normal(500))
    seconds[25::25] += 9
    columns = {"step_s": seconds}
    if evaluates:
        columns["evaluated"] = (np.arange(500) % 25 == 0).cumsum()
    rate = measure_rate(log_of(columns, steps=np.arange(0, 5000, 10)), clock="printed")
    assert (rate.rate.low is not None) == is_known
    assert (rate.rate.value == pytest.approx(10, rel=0.01)) == is_known
    assert bool(rate.why_undetermined) != is_known


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ((1.16, 0.94, 1.43), "1.16x [0.94, 1.43]"),
        ((1.0021, 1.0012, 1.0034), "1.002x [1.001, 1.003]"),
        ((0.9996, 0.9993, 0.9998), "0.9996x [0.9993, 0.9998]"),
        ((1.0, 1.0, 1.0), "1.00x [1.00, 1.00]"),
        ((1.5, None, None), "1.50x"),
    ],
)
def test_a_speedup_has_digits_until_its_interval_has_a_width_beside_one(estimate, text):
    assert ratio_text(*estimate) == text
