"""`compare` gives one verdict on speed, loss and quality of each arm, and what differs."""

import json

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

FASTER = {"steps_per_s": 5.0, "overrides": ("train.compile=true",)}


@pytest.fixture
def compare(tmp_path, capsys):
    """Plants runs by name and gives the rows, by run and quantity, and the text of `compare`."""

    def run(**truths: SyntheticRun):
        folders = [str(generate_run(tmp_path / name, truth)) for name, truth in truths.items()]
        assert main(["compare", *folders, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["compare", *folders]) == 0
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
    assert "The effect of train.compile: false -> true." in text
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
    assert rows["b", "speed"]["word"] == "undetermined"


def test_one_run_is_misuse(tmp_path, capsys):
    assert main(["compare", str(generate_run(tmp_path / "a", SyntheticRun()))]) == 2
    assert "compare takes two or more" in capsys.readouterr().err
