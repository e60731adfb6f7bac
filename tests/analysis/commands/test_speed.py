"""`speed` says how fast, by how much, how sure, and what else differs."""

import csv
import io
import json
import re

import pytest

from analysis.__main__ import main
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

KEYS = {
    "run", "clock", "unit", "steps_per_s", "steps_per_s_low", "steps_per_s_high", "images_per_s",
    "speedup", "speedup_low", "speedup_high", "verdict", "data_share",
}  # fmt: skip


@pytest.fixture
def speed(tmp_path, capsys):
    """Plants runs by name and gives the rows of `speed --json` on them."""

    def run(*flags: str, **truths: SyntheticRun):
        folders = [str(generate_run(tmp_path / name, truth)) for name, truth in truths.items()]
        assert main(["speed", *folders, *flags]) == 0
        return capsys.readouterr()

    return run


def rows(output):
    return json.loads(output.out)


def test_json_is_the_documented_contract(speed):
    base, other = rows(speed("--json", a=SyntheticRun(), b=SyntheticRun(steps_per_s=8, seed=1)))
    assert set(base) == KEYS - {"speedup", "speedup_low", "speedup_high"}
    assert set(other) == KEYS
    assert base["verdict"] == "baseline"
    assert base["clock"] == "train"
    assert base["images_per_s"] == pytest.approx(256, rel=0.01)


def test_a_planted_speedup_lies_in_its_interval(speed):
    found = rows(speed("--json", a=SyntheticRun(), b=SyntheticRun(steps_per_s=7.72, seed=1)))[1]
    assert found["speedup_low"] <= 1.93 <= found["speedup_high"]
    assert found["verdict"] == "faster, within-run only"


def test_equal_runs_are_not_told_apart(speed):
    found = rows(speed("--json", a=SyntheticRun(), b=SyntheticRun(seed=3)))[1]
    assert found["verdict"] == "no detectable difference, within-run only"


def test_few_intervals_are_undetermined_but_have_a_rate(speed):
    base, few = rows(speed("--json", a=SyntheticRun(), b=SyntheticRun(intervals=5)))
    assert few["verdict"] == "undetermined"
    assert few["steps_per_s"] == pytest.approx(4, rel=0.05)
    assert "speedup_low" not in few
    assert base["verdict"] == "baseline"


def test_a_larger_batch_is_compared_by_images(speed):
    large = SyntheticRun(global_batch=128, seed=1)
    found = rows(speed("--json", a=SyntheticRun(), b=large))[1]
    assert found["speedup"] == pytest.approx(2, rel=0.02)


def test_the_share_of_steps_that_waited_for_the_host_is_shown_where_it_is_known(tmp_path, capsys):
    folder = generate_run(tmp_path / "a", SyntheticRun())
    lines = (folder / "metrics.jsonl").read_text().replace('"loss"', '"host_bound": 0.25, "loss"')
    (folder / "metrics.jsonl").write_text(lines)
    other = generate_run(tmp_path / "b", SyntheticRun())
    assert main(["speed", str(folder), str(other), "--json"]) == 0
    a, b = json.loads(capsys.readouterr().out)
    assert (a["host_bound"], "host_bound" in b) == (0.25, False)
    assert main(["speed", str(folder), str(other)]) == 0
    assert re.search(r"host-bound.*\na +25(\.0)?\b", capsys.readouterr().out)


def test_the_table_shows_the_speedup_with_its_interval(speed):
    output = speed(a=SyntheticRun(), b=SyntheticRun(steps_per_s=7.72, seed=0))
    assert re.search(r"1\.93x \[1\.92, 1\.94\]", output.out)
    assert "time by purpose" in output.out


def test_runs_are_compared_by_what_auto_came_to(tmp_path, capsys):
    truths = {"a": (False, "auto"), "b": (True, "auto"), "c": (True, "true")}
    folders = []
    for seed, (name, (compiled, key)) in enumerate(truths.items()):
        truth = SyntheticRun(seed=seed, overrides=(f"train.compile={key}",))
        folders.append(str(generate_run(tmp_path / name, truth)))
        RunFolder(tmp_path / name).note(1, compile=compiled)
    assert main(["speed", *folders]) == 0
    output = capsys.readouterr().out
    for name in "bc":
        assert f"{name} against a: speedup of train.compile: false -> true" in output


def test_one_difference_gives_a_speedup_of_it(speed):
    output = speed(a=SyntheticRun(), b=SyntheticRun(overrides=("train.compile=true",), seed=1))
    assert "b against a: speedup of train.compile: false -> true" in output.out


def test_two_differences_are_refused_the_words(speed):
    output = speed(
        a=SyntheticRun(), b=SyntheticRun(overrides=("train.compile=true",), gpu="NVIDIA A100")
    )
    assert "2 things differ (train.compile, gpu): not the speedup of any one of them" in output.out
    assert "speedup of train.compile" not in output.out


def test_what_was_asked_of_the_cluster_is_listed_but_no_cause(speed):
    output = speed(a=SyntheticRun(), b=SyntheticRun(overrides=("resources.hours=9.0",), ranks=2))
    assert "speedup of ranks: 1 -> 2" in output.out
    assert "resources.hours" in output.out


def test_repeats_are_pooled_into_arms_when_asked(speed):
    slow = {f"a{i}": SyntheticRun(seed=i) for i in range(3)}
    fast = {f"b{i}": SyntheticRun(seed=i, steps_per_s=5, gpu="NVIDIA A100") for i in range(3)}
    found = rows(speed("--json", "--arms", **slow, **fast))
    assert [row["run"] for row in found] == ["a0 (+2 alike)", "b0 (+2 alike)"]
    assert found[1]["verdict"] == "faster"
    assert found[1]["speedup_low"] <= 1.25 <= found[1]["speedup_high"]


def test_without_arms_repeats_stand_alone_and_a_remark_says_so(speed):
    output = speed(
        "--json", a=SyntheticRun(), b=SyntheticRun(seed=1), c=SyntheticRun(gpu="NVIDIA A100")
    )
    assert len(rows(output)) == 3
    assert "--arms pools them" in output.err


def test_csv_holds_the_same_rows(speed):
    output = speed("--csv", a=SyntheticRun(), b=SyntheticRun(seed=1))
    found = list(csv.DictReader(io.StringIO(output.out)))
    assert [row["run"] for row in found] == ["a", "b"]
    units = {"units_per_s", "units_per_s_low", "units_per_s_high"}
    assert set(found[0]) == KEYS | units | {"mfu", "hfu", "mfu_naive_6n", "host_bound"} | {
        "rounds", "narrower", "gpu_busy", "power_w",
    }  # fmt: skip


def test_a_run_without_steps_is_undetermined_and_says_why(speed, tmp_path, capsys):
    generate_run(tmp_path / "a", SyntheticRun())
    empty = generate_run(tmp_path / "b", SyntheticRun())
    (empty / "metrics.jsonl").write_text("")
    assert main(["speed", str(tmp_path / "a"), str(empty), "--json"]) == 0
    output = capsys.readouterr()
    assert rows(output)[1] == {
        "run": "b", "clock": "train", "unit": "step", "verdict": "undetermined",
    }  # fmt: skip
    assert "b: no two steps in one attempt" in output.err
