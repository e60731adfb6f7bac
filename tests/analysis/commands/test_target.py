"""`target` finds when a target was reached, and splits that time into its factors."""

import json

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.time_to_target import parse_target
from configs.errors import Unreadable
from tests.analysis import foreign_logs as write
from tests.analysis.synthetic_runs import START, SyntheticRun, append, generate_run, write_lines

E_MIN, B_CRIT = 20_000, 200


def truth(
    batch: int, *, seed: int = 0, target: float = 0.25, images=None, scatter=0.01, **changes
) -> SyntheticRun:
    """A run that reaches the target after E_MIN (1 + B / B_CRIT) images, but for its seed."""
    planted = images or E_MIN * (1 + batch / B_CRIT)
    needed = planted * np.exp(scatter * np.random.default_rng(seed).normal())

    def loss(step):
        return target * (needed / (step * batch)) ** 0.3

    lasting = {"intervals": int(2.5 * planted / batch / 2), "every": 2}
    fixed = {"global_batch": batch, "loss": loss, "loss_noise": 0.001, "seed": seed}
    return SyntheticRun(**fixed | lasting | changes)


@pytest.fixture
def quality(plant, said):
    """Plants runs; the exit code and the groups of `target`, and the remarks."""

    def run(*runs: SyntheticRun, target: str = "loss<=0.25"):
        folders = plant(**{f"run{number}": one for number, one in enumerate(runs)})
        code, found, remarks = said("target", *folders, "--target", target)
        return code, found["groups"], remarks

    return run


def test_the_samples_to_the_target_are_those_planted(quality):
    code, [group], _ = quality(truth(64, cv=1e-9))
    assert code == 0
    assert group["samples_to_target"] == pytest.approx(E_MIN * (1 + 64 / B_CRIT), rel=0.03)
    assert group["images_per_s"] == pytest.approx(256, rel=0.01)
    expected = (group["samples_to_target"] / 256 + 20) / 60
    assert group["minutes"] == pytest.approx(expected, rel=0.01)


def test_a_speedup_is_the_product_of_its_parts(quality):
    _, (_, group), _ = quality(truth(64), truth(256, ranks=4, steps_per_s=3))
    parts = ("throughput_gain", "statistical_efficiency", "availability_gain")
    assert group["speedup"] == pytest.approx(np.prod([group[part] for part in parts]))
    assert group["throughput_gain"] == pytest.approx(3, rel=0.02)
    assert group["statistical_efficiency"] == pytest.approx(
        (1 + 64 / 200) / (1 + 256 / 200), rel=0.05
    )


def test_a_target_that_is_never_reached_is_said_and_exits_1(quality):
    code, [group], err = quality(truth(64), target="loss<=0.001")
    assert (code, group["missed"]) == (1, 1)
    assert "run0: never reached loss<=0.001" in err


def test_an_evaluation_is_a_target_that_is_interpolated(plant, asked):
    [run] = plant(a=SyntheticRun(intervals=20))
    for step, accuracy in ((50, 0.5), (100, 0.75), (150, 0.8)):
        at = {"time": START + step, "step": step, "images": step * 64}
        append(run, at | {"eval_accuracy": accuracy})
    [group] = asked("target", run, "--target", "eval_accuracy>=0.7")["groups"]
    assert group["samples_to_target"] == pytest.approx(50 * 64 * 2 ** (0.2 / 0.25))


def test_mlperf_runs_are_timed_from_their_run_start(tmp_path, asked):
    def entry(ms, key, value, **metadata):
        time_ms = 1_700_000_000_000 + 1_000_000 * seed + ms
        found = {"time_ms": time_ms, "key": key, "value": value, "metadata": metadata}
        return ":::MLLOG " + json.dumps(found)

    for seed in range(5):
        lines = [
            entry(0, "global_batch_size", 512),
            entry(1000, "run_start", None),
            entry(1000, "tracked_stats", {"train_loss": 1.9}, step=1, samples_count=512),
            entry(61_000 + seed, "eval_accuracy", 0.65, samples_count=5120),
            entry(121_000 + seed, "eval_accuracy", 0.71, samples_count=10_240),
            entry(122_000, "run_stop", None, status="success"),
        ]
        (tmp_path / f"result_{seed}.txt").write_text("\n".join(lines))
    [group] = asked("target", tmp_path, "--target", "eval_accuracy>=0.7")["groups"]
    assert group["global_batch"] == 512
    assert group["runs"] == 5
    assert group["minutes"] == pytest.approx(2, abs=1e-3)
    assert group["samples_to_target"] == pytest.approx(10_240)


def recipe(*, seeds=(0, 1, 2), faster=1.0, efficiency=1.0, name="gelu", scatter=0.01):
    """Runs of a recipe that needs 20,000 / efficiency images at 256 x faster images/s."""
    return [
        truth(
            64, intervals=700, seed=seed, images=20_000 / efficiency, scatter=scatter,
            steps_per_s=4 * faster, setup_s=0.0, data=0.0, cv=1e-3,
            overrides=(f"model.mlp={name}",),
        )
        for seed in seeds
    ]  # fmt: skip


def test_a_throughput_that_is_lost_in_efficiency_is_no_faster_to_the_target(quality):
    runs = recipe() + recipe(faster=1.3, efficiency=1 / 1.3, name="swiglu")
    _, (base, group), _ = quality(*runs)
    assert "word" not in base
    assert group["word"] in ("same", "undetermined")
    assert group["runs"] == 3
    for name, planted in (
        ("throughput_gain", 1.3), ("statistical_efficiency", 1 / 1.3), ("speedup", 1),
        ("availability_gain", 1),
    ):  # fmt: skip
        assert group[f"{name}_low"] <= planted <= group[f"{name}_high"]
        assert group[f"{name}_high"] / group[f"{name}_low"] < 1.15


def test_a_lucky_seed_among_three_is_not_called_better(quality):
    lucky = recipe(seeds=(0, 1), name="swiglu") + recipe(seeds=(2,), name="swiglu", efficiency=1.5)
    _, (_, group), _ = quality(*recipe(), *lucky)
    assert group["speedup"] > 1.1
    assert group["word"] == "undetermined"


def test_one_seed_has_no_interval(quality):
    _, (_, group), _ = quality(*recipe(), *recipe(seeds=(0,), faster=2, name="swiglu"))
    assert group["word"] == "not compared"
    assert group["speedup"] == pytest.approx(2, rel=0.05)
    assert "speedup_low" not in group


def test_an_evaluation_after_the_end_counts_at_the_time_of_its_step(plant, asked):
    [run] = plant(a=SyntheticRun(intervals=20, cv=1e-9))
    append(run, {"time": START + 90_000, "step": 100, "images": 6400, "fid": 20.0})
    [group] = asked("target", run, "--target", "fid<=20")["groups"]
    assert group["minutes"] == pytest.approx((20 + 100 / 4) / 60, rel=1e-3)


@pytest.mark.parametrize("text", ["loss", "loss<0.2", "<=1", "loss<=x", "loss<=e", ""])
def test_a_target_that_is_none_is_misuse(text, tmp_path, capsys):
    run = str(generate_run(tmp_path / "a", SyntheticRun(intervals=20)))
    assert main(["target", run, "--target", text]) == 2
    with pytest.raises(Unreadable, match="expected NAME<=VALUE"):
        parse_target(text)


def test_a_metric_that_is_not_recorded_is_misuse(tmp_path, capsys):
    run = str(generate_run(tmp_path / "a", SyntheticRun(intervals=20)))
    assert main(["target", run, "--target", "fid<=10"]) == 2
    assert "records no fid" in capsys.readouterr().err


def test_runs_that_cannot_be_timed_are_left_out_and_named(tmp_path, plant, said):
    [run] = plant(a=SyntheticRun())
    (tmp_path / "b.csv").write_bytes(write.lightning(write.synthetic_log()))
    _, found, remarks = said("target", run, tmp_path / "b.csv", "--target", "loss<=0.4")
    assert [group["runs"] for group in found["groups"]] == [1]
    assert "left out: " in remarks
    assert "b.csv: records no time beside its loss" in remarks


def jsonl(path, *, first=1, every=1, last=400, step_s=1.0):
    """Write a log of instant losses 1 / (1 + step / 10), of 64 images a step."""
    lines = [
        {"step": k, "images": 64 * k, "loss": 1 / (1 + k / 10), "time": START + step_s * k}
        for k in range(first, last + 1, every)
    ]
    write_lines(path, lines)


def test_logs_without_a_config_stand_alone(tmp_path, asked):
    for name, step_s in (("a", 1.0), ("b", 2.0)):
        jsonl(tmp_path / f"{name}.jsonl", step_s=step_s)
    groups = asked("target", tmp_path, "--target", "loss<=0.1")["groups"]
    assert [group["minutes"] for group in groups] == pytest.approx([1.5, 3.0], rel=0.05)


def test_the_time_before_the_first_record_counts_unless_the_head_of_the_log_is_missing(
    tmp_path, said
):
    jsonl(tmp_path / "a.jsonl", first=5, every=5)
    jsonl(tmp_path / "late.jsonl", first=50)
    _, found, remarks = said("target", tmp_path, "--target", "loss<=0.03")
    [group] = found["groups"]
    assert group["minutes"] == pytest.approx(324 / 60, rel=0.01)
    assert "begins at step 50: when it began is not known" in remarks


def test_logs_without_images_are_told_apart_by_steps_and_seconds(tmp_path, asked):
    for name, every in (("a", 10), ("b", 20)):
        lines = [
            {"step": k + 1, "loss": 1 / (1 + k / every), "time": START + k} for k in range(200)
        ]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    a, b = asked("target", tmp_path, "--target", "loss<=0.1")["groups"]
    assert a["steps_to_target"] == pytest.approx(91, abs=2)
    assert b["steps_to_target"] == pytest.approx(181, abs=2)
    assert b["speedup"] == pytest.approx(0.5, abs=0.1)
    assert "samples_to_target" not in a
