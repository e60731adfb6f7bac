"""`speed` says how fast, by how much, how sure, and what else differs."""

import pytest

from analysis.__main__ import main
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun

KEYS = {
    "run", "clock", "counts", "steps_per_s", "steps_per_s_low", "steps_per_s_high", "images_per_s",
    "data_share",
}  # fmt: skip
OTHER = {"overrides": ("data.workers=3",)}
JUDGEMENT = {"word", "ratio", "low", "high", "unit", "n", "comparisons", "verdict"}


@pytest.fixture
def speed(plant, asked):
    """Plants a run and another, and gives the rows of `speed` on them."""
    return lambda other: asked("speed", *plant(a=SyntheticRun(), b=other))


def test_json_is_the_documented_contract(speed):
    base, other = speed(SyntheticRun(steps_per_s=8, seed=1, **OTHER))
    assert set(base) == KEYS
    assert set(other) == KEYS | JUDGEMENT
    assert base["clock"] == "train"
    assert base["images_per_s"] == pytest.approx(256, rel=0.01)


def test_two_single_runs_are_compared_step_by_step_and_the_verdict_is_on_them_alone(speed):
    found = speed(SyntheticRun(steps_per_s=7.72, seed=1, **OTHER))[1]
    assert found["low"] <= 1.93 <= found["high"]
    assert (found["word"], found["unit"]) == ("different", "step")
    assert found["verdict"] == (
        "b is 1.93x as fast as a, 1.92 to 1.94 (these two runs, paired by step)"
    )


def test_two_runs_of_one_recipe_are_not_called_different(speed):
    found = speed(SyntheticRun(seed=3, steps_per_s=4.4))[1]
    assert found["word"] == "undetermined"
    assert "1.10x as fast" in found["verdict"]
    assert "nothing known differs" in found["verdict"]


def test_few_intervals_are_undetermined_but_have_a_rate(speed):
    _, few = speed(SyntheticRun(intervals=5))
    assert few["word"] == "undetermined"
    assert few["steps_per_s"] == pytest.approx(4, rel=0.05)
    assert "low" not in few


def test_runs_are_compared_by_what_auto_came_to(plant, capsys):
    truths = {"a": (False, "auto"), "b": (True, "auto"), "c": (True, "true")}
    folders = []
    for seed, (name, (compiled, key)) in enumerate(truths.items()):
        folders += plant(**{name: SyntheticRun(seed=seed, overrides=(f"train.compile={key}",))})
        RunFolder(folders[-1]).note(1, compile=compiled)
    assert main(["speed", *map(str, folders)]) == 0
    output = capsys.readouterr().out
    for name in "bc":
        assert f"{name} against a: only this differs: train.compile: false -> true" in output


COMPILED, HOURS = ("train.compile=true",), ("resources.hours=9.0",)


@pytest.mark.parametrize(
    ("other", "phrase"),
    [
        (
            SyntheticRun(overrides=COMPILED, seed=1),
            "only this differs: train.compile: false -> true",
        ),
        (
            SyntheticRun(overrides=COMPILED, gpu="NVIDIA A100"),
            "2 things differ (train.compile, gpu): not the effect of any one of them",
        ),
        # What was asked of the cluster is listed, but no cause.
        (SyntheticRun(overrides=HOURS, ranks=2), "only this differs: ranks: 1 -> 2"),
    ],
)
def test_the_one_difference_of_two_runs_is_named_and_of_several_none(plant, capsys, other, phrase):
    assert main(["speed", *map(str, plant(a=SyntheticRun(), b=other))]) == 0
    output = capsys.readouterr().out
    assert f"b against a: {phrase}" in output
    assert ("resources.hours" in output) == (other.overrides == HOURS)


def test_repeats_stand_alone_and_a_remark_names_what_pools_them(plant, said):
    runs = plant(a=SyntheticRun(), b=SyntheticRun(seed=1), c=SyntheticRun(gpu="NVIDIA A100"))
    _, found, remarks = said("speed", *runs)
    assert len(found) == 3
    assert "cells pools them" in remarks


def test_a_run_without_steps_is_undetermined_and_says_why(plant, said):
    a, empty = plant(a=SyntheticRun(), b=SyntheticRun())
    (empty / "metrics.jsonl").write_text("")
    _, (_, row), remarks = said("speed", a, empty)
    assert (row["word"], row["unit"], row["n"]) == ("undetermined", "none", 0)
    assert row["why"] == "no time is recorded"
    assert "b: no two steps in one attempt" in remarks


def test_pauses_that_no_log_declares_count_and_are_told(plant, said):
    slow = SyntheticRun(outliers=0.1, outliers_slower=(3.0, 3.001), intervals=300)
    _, [row], remarks = said("speed", *plant(a=slow))
    assert row["steps_per_s"] == pytest.approx(4 / 1.2, rel=0.1)
    assert "of the time in steps over 2x the median" in remarks
