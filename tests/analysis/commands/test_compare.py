"""`compare` gives one verdict on speed, loss and quality of each arm, and what differs."""

import math

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run, write_lines

FASTER = {"steps_per_s": 5.0, "overrides": ("train.compile=true",)}


@pytest.fixture
def compare(plant, asked, capsys):
    """Plants runs by name and gives the rows, by run and quantity, and the text of `compare`."""

    def run(**truths: SyntheticRun):
        folders = plant(**truths)
        found = asked("compare", *folders)
        assert main(["compare", *map(str, folders)]) == 0
        rows = {(row["run"], row["quantity"]): row for row in found["comparisons"]}
        return rows, found["differences"], capsys.readouterr().out

    return run


def test_two_runs_have_a_verdict_on_speed_and_one_on_loss(compare):
    rows, differ, text = compare(
        a=SyntheticRun(intervals=300), b=SyntheticRun(intervals=300, seed=1, **FASTER)
    )
    speed, loss = rows["b", "speed"], rows["b", "loss"]
    assert (speed["word"], loss["word"]) == ("different", "same")
    assert speed["low"] < 1.25 < speed["high"]
    assert speed["comparisons"] == 2
    assert "b is 1.250x as fast as a" in text
    assert "Only this differs: train.compile: false -> true." in text
    assert {row["differs"] for row in differ} == {"train.compile", "seed"}


def test_repeats_are_pooled_into_arms_and_support_a_claim(compare):
    slow = {f"a{n}": SyntheticRun(seed=n) for n in range(3)}
    fast = {f"b{n}": SyntheticRun(seed=n, **FASTER) for n in range(3)}
    rows, _, text = compare(**slow, **fast)
    assert rows["b0 (+2 alike)", "speed"]["word"] == "faster"
    assert rows["b0 (+2 alike)", "loss"]["unit"] == "seed"
    assert "(3 seeds a side)" in text


def test_repeats_alone_are_compared_as_single_runs(compare):
    rows, _, _ = compare(a=SyntheticRun(), b=SyntheticRun(seed=1))
    assert rows["b", "speed"]["verdict"].endswith("(these two runs, paired by step, 2 comparisons)")


def test_one_run_is_misuse(tmp_path, capsys):
    assert main(["compare", str(generate_run(tmp_path / "a", SyntheticRun()))]) == 2
    assert "compare takes two or more" in capsys.readouterr().err


def logs_of(folder, *, losses, **more):
    """Write JSON lines of a step in .5 s for each list of losses."""
    paths = []
    for name, values in zip("ab", losses, strict=True):
        lines = [
            {"step": 20 * k + 20, "loss": loss, "time": 1.77e9 + 10 * k + 0.1 * math.sin(k)}
            | {key: column[name][k] for key, column in more.items() if k % 10 == 9}
            for k, loss in enumerate(values)
        ]
        paths.append(str(write_lines(folder / f"{name}.jsonl", lines)))
    return paths


def test_a_speed_that_cannot_be_in_images_names_its_unit(tmp_path, capsys):
    paths = logs_of(tmp_path, losses=[[1.0] * 60] * 2)
    assert main(["compare", *paths]) == 0
    assert "in steps/s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["val_loss", "eval_loss", "test_loss", "eval_fid", "val_lpips", "eval_accuracy"]
)
def test_a_held_out_loss_or_score_of_another_trainer_is_compared(tmp_path, asked, name):
    held_out = {side: [loss] * 60 for side, loss in (("a", 0.6), ("b", 0.6))}
    paths = logs_of(tmp_path, losses=[[1.0] * 60] * 2, **{name: held_out})
    rows = asked("compare", *paths)["comparisons"]
    assert [row["quantity"] for row in rows] == ["speed", "loss", name.replace("_", " ")]


def test_a_loss_that_is_not_finite_to_the_end_is_not_compared_up_to_there(tmp_path, asked):
    paths = logs_of(tmp_path, losses=[[1.0] * 60, [1.0] * 30 + [float("nan")] * 30])
    [row] = asked("loss", *paths)["pairs"]
    assert row["word"] == "not compared"
    assert "the loss of b.jsonl is not finite from step 620 on" in row["verdict"]
