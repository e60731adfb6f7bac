"""`cells --ablation` finds planted effects from pairs."""

import json
from itertools import product

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import START, SyntheticRun, generate_run


def grid() -> dict[str, SyntheticRun]:
    """compile +70 %, and bf16 +50 %, which is half as much on top of compile; batch has none."""
    runs = {}
    for number, (compiled, precision, batch) in enumerate(
        product(("false", "true"), ("fp32", "bf16"), (64, 128, 256))
    ):
        factor = (1.7 if compiled == "true" else 1) * (1.5 if precision == "bf16" else 1)
        factor *= 1.25 / 1.5 if (compiled, precision) == ("true", "bf16") else 1
        runs[f"cell{number:02d}"] = SyntheticRun(
            seed=number,
            intervals=60,
            global_batch=batch,
            steps_per_s=4 * factor * 64 / batch,
            overrides=(f"train.compile={compiled}", f"train.precision={precision}"),
        )
    return runs


@pytest.fixture
def ablation(tmp_path, capsys):
    """Plants a study; the exit code, answer and remarks of `ablation --json`."""

    def run(runs: dict[str, SyntheticRun], *flags: str, failed: str | None = None):
        for name, truth in runs.items():
            folder = generate_run(tmp_path / name, truth)
            if name == failed:
                event = {"time": 1.0, "attempt": 1, "event": "failed", "reason": "oom"}
                (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")
        code = main(["cells", "--ablation", str(tmp_path), "--json", *flags])
        output = capsys.readouterr()
        return code, json.loads(output.out), output.err

    return run


def by_factor(answer):
    return {effect["factor"]: effect for effect in answer if effect["to"] != "256"}


def test_main_effects_are_those_planted(ablation):
    code, answer, _ = ablation(grid())
    found = by_factor(answer)
    assert code == 0
    assert found["train.compile"]["pairs"] == 6
    assert found["train.compile"]["ratio"] == pytest.approx(1.552, abs=0.02)
    assert found["train.compile"]["low"] < 1.552 < found["train.compile"]["high"]
    assert found["train.compile"]["word"] == "faster"
    assert found["train.global_batch"]["word"] == "same"
    assert found["train.compile"]["comparisons"] >= 3
    assert found["train.global_batch"]["ratio"] == pytest.approx(1, abs=0.01)


def test_a_cell_that_ran_out_of_memory_is_in_no_pair(ablation):
    _, answer, _ = ablation(grid(), failed="cell02")
    found = by_factor(answer)["train.compile"]
    assert found["pairs"] == 5


def test_factors_that_vary_in_step_are_one_and_the_first_labels_the_levels(ablation):
    runs = {f"r{n}": SyntheticRun(ranks=n, gpu=f"GPU {n}", seed=n) for n in (1, 2)}
    _, answer, _ = ablation(runs)
    assert [(effect["factor"], effect["from"], effect["to"]) for effect in answer] == [
        ("ranks + gpu", "1", "2")
    ]


@pytest.mark.parametrize(("apart", "why"), [("nodes", "ran on n"), ("time", "times of their own")])
def test_a_factor_mixed_up_with_nodes_or_time_has_no_effect(ablation, tmp_path, apart, why):
    ablation(grid())
    for number in range(12):
        is_after = number >= 6  # compiled
        folder = tmp_path / f"cell{number:02d}"
        if apart == "nodes":
            text = (folder / "manifest.json").read_text()
            (folder / "manifest.json").write_text(text.replace('"n1"', f'"n{1 + is_after}"'))
        else:
            manifest = json.loads((folder / "manifest.json").read_text())
            for attempt in manifest["attempts"]:
                attempt["began"] = START + 1e4 * number
            (folder / "manifest.json").write_text(json.dumps(manifest))
    _, answer, _ = ablation({})
    effect = by_factor(answer)["train.compile"]
    assert effect["word"] == "undetermined"
    assert why in effect["why"]


def test_cells_are_paired_only_where_all_else_is_alike(ablation):
    runs = {"a": SyntheticRun(), "b": SyntheticRun(ranks=2, overrides=("train.compile=true",)),
            "c": SyntheticRun(
                ranks=2, overrides=("train.compile=true", "data.workers=2"))}  # fmt: skip
    code, answer, _ = ablation(runs)
    assert code == 0
    pairs = {effect["factor"]: effect["pairs"] for effect in answer}
    assert pairs == {"data.workers": 1, "ranks + train.compile": 1}


def test_types_that_only_follow_from_layout_and_precision_are_no_factors(ablation):
    runs = {}
    for number, (shard, precision) in enumerate(product((1, 2), ("fp32", "bf16"))):
        compute = {"fp32": "float32", "bf16": "bfloat16"}[precision]
        dtypes = {"compute": compute} | ({"gather": compute} if shard > 1 else {})
        runs[f"cell{number}"] = SyntheticRun(
            seed=number,
            ranks=2,
            intervals=60,
            steps_per_s=4.0 / shard,
            facts={"dtypes": dtypes},
            overrides=(f"layout.shard={shard}", f"train.precision={precision}"),
        )
    _, answer, _ = ablation(runs)
    found = by_factor(answer)
    assert found.keys() == {"layout.shard", "train.precision"}
    assert found["layout.shard"]["pairs"] == 2
    assert found["layout.shard"]["ratio"] == pytest.approx(0.5, abs=0.03)


def test_cells_without_a_factor_in_common_are_told(tmp_path, capsys):
    generate_run(tmp_path / "a", SyntheticRun())
    assert main(["cells", "--ablation", str(tmp_path)]) == 1
    assert "no two cells differ in one factor only" in capsys.readouterr().err
