"""`cells --ablation` finds planted effects from pairs."""

from itertools import product

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import (
    START,
    SyntheticRun,
    generate_run,
    rewrite_manifest,
    write_lines,
)


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
def ablation(tmp_path, plant, asked):
    """Plants a study, and gives the rows of `cells --ablation`."""

    def run(**runs: SyntheticRun):
        plant(**runs)
        return asked("cells", "--ablation", tmp_path)

    return run


def by_factor(answer):
    return {effect["factor"]: effect for effect in answer if effect["to"] != "256"}


def test_main_effects_are_those_planted(ablation):
    found = by_factor(ablation(**grid()))
    assert found["train.compile"]["pairs"] == 6
    assert found["train.compile"]["ratio"] == pytest.approx(1.552, abs=0.02)
    assert found["train.compile"]["low"] < 1.552 < found["train.compile"]["high"]
    assert found["train.compile"]["word"] == "faster"
    assert found["train.global_batch"]["word"] == "same"
    assert found["train.compile"]["comparisons"] >= 3
    assert found["train.global_batch"]["ratio"] == pytest.approx(1, abs=0.01)


def test_a_cell_that_ran_out_of_memory_is_in_no_pair(tmp_path, plant, ablation):
    plant(**grid())
    event = {"time": 1.0, "attempt": 1, "event": "failed", "reason": "oom"}
    write_lines(tmp_path / "cell02" / "metrics.jsonl", [event])
    assert by_factor(ablation())["train.compile"]["pairs"] == 5


def test_factors_that_vary_in_step_are_one_and_the_first_labels_the_levels(ablation):
    runs = {f"r{n}": SyntheticRun(ranks=n, gpu=f"GPU {n}", seed=n) for n in (1, 2)}
    answer = ablation(**runs)
    assert [(effect["factor"], effect["from"], effect["to"]) for effect in answer] == [
        ("ranks + gpu", "1", "2")
    ]


@pytest.mark.parametrize(("apart", "why"), [("nodes", "ran on n"), ("time", "times of their own")])
def test_a_factor_mixed_up_with_nodes_or_time_has_no_effect(plant, ablation, apart, why):
    for number, folder in enumerate(plant(**grid())):
        is_after = number >= 6  # compiled
        if apart == "nodes":
            text = (folder / "manifest.json").read_text()
            (folder / "manifest.json").write_text(text.replace('"n1"', f'"n{1 + is_after}"'))
        else:
            began = START + 1e4 * number
            rewrite_manifest(folder, lambda first, began=began: first.update(began=began))
    effect = by_factor(ablation())["train.compile"]
    assert effect["word"] == "undetermined"
    assert why in effect["why"]


def test_cells_are_paired_only_where_all_else_is_alike(ablation):
    runs = {"a": SyntheticRun(), "b": SyntheticRun(ranks=2, overrides=("train.compile=true",)),
            "c": SyntheticRun(
                ranks=2, overrides=("train.compile=true", "data.workers=2"))}  # fmt: skip
    pairs = {effect["factor"]: effect["pairs"] for effect in ablation(**runs)}
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
    found = by_factor(ablation(**runs))
    assert found.keys() == {"layout.shard", "train.precision"}
    assert found["layout.shard"]["pairs"] == 2
    assert found["layout.shard"]["ratio"] == pytest.approx(0.5, abs=0.03)


def test_cells_without_a_factor_in_common_are_told(tmp_path, capsys):
    generate_run(tmp_path / "a", SyntheticRun())
    assert main(["cells", "--ablation", str(tmp_path)]) == 1
    assert "no two cells differ in one factor only" in capsys.readouterr().err
