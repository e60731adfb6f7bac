"""`cells`: a study as a table, every cell with its rate over repeats, its speedup and its loss."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run, write_lines


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Three cells of three repeats: plain, 1.5 times as fast, and as fast with twice the loss."""
    cells = {
        "train.compile=false": SyntheticRun(steps_per_s=4.0),
        "train.compile=true": SyntheticRun(steps_per_s=6.0),
        "optimizer.lr=0.5": SyntheticRun(loss_scale=2.0),
    }
    for number, (key, truth) in enumerate(cells.items()):
        for repeat in range(3):
            rate = truth.steps_per_s * (1 + 0.004 * (repeat - 1))
            planted = SyntheticRun(
                steps_per_s=rate, intervals=300, loss_scale=truth.loss_scale, seed=repeat,
                overrides=(key,),
            )  # fmt: skip
            generate_run(tmp_path / "study" / f"cell{number}_{repeat}", planted)
    return tmp_path / "study"


def test_every_cell_has_its_levels_speedup_and_loss(study, asked):
    found = asked("cells", study)
    assert "NVIDIA A40" in found["on"]
    plain, compiled, odd = found["cells"]
    assert [row["runs"] for row in (plain, compiled, odd)] == [3, 3, 3]
    assert (plain["train.compile"], compiled["train.compile"]) == ("false", "true")
    assert "ratio" not in plain
    assert compiled["low"] < 1.5 < compiled["high"]
    assert (compiled["word"], compiled["unit"], compiled["comparisons"]) == ("faster", "seed", 3)
    assert (compiled["loss_word"], odd["loss_word"]) == ("same", "worse")
    assert "3 seeds a side, 3 comparisons" in odd["loss_verdict"]
    assert odd["loss"] == pytest.approx(2 * plain["loss"], rel=0.02)
    assert odd["word"] == "same"


def test_the_table_is_short_and_names_the_hardware(study, capsys):
    assert main(["cells", str(study), "--all"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["optimizer.lr", "train.compile", "runs"]
    assert sum(line.split()[-1:] == ["same"] for line in lines) == 1
    assert "1.50x [" in lines[1]
    assert lines[-1].startswith("on gpu NVIDIA A40")


def test_a_loss_verdict_says_that_runs_of_other_lengths_share_only_a_part(study, asked, capsys):
    assert main(["cells", str(study)]) == 0
    assert "which all have" not in capsys.readouterr().out
    for seed in range(3):
        shorter = SyntheticRun(intervals=100, seed=seed, overrides=("data.workers=3",))
        generate_run(study / f"shorter{seed}", shorter)
    row = asked("cells", study)["cells"][-1]
    assert "up to 64000 images, which all have" in row["loss_verdict"]


def test_a_cell_that_failed_is_told_and_its_rate_is_not(study, asked):
    event = {"time": 1.0, "attempt": 1, "event": "failed", "reason": "oom"}
    for repeat in range(3):
        write_lines(study / f"cell1_{repeat}" / "metrics.jsonl", [event])
    failed = asked("cells", study)["cells"][1]
    assert failed["ended_early"] == "oom"
    assert "steps_per_s" not in failed
    assert (failed["word"], failed["why"]) == ("undetermined", "no time is recorded")


def test_cells_that_wait_are_left_out_and_counted(study, said):
    event = {"time": 1.0, "attempt": 1, "event": "queued"}
    write_lines(study / "cell1_2" / "metrics.jsonl", [event])
    (study / "cell1_2" / "manifest.json").unlink()
    _, found, remarks = said("cells", study)
    assert [row["runs"] for row in found["cells"]] == [3, 2, 3]
    assert "1 runs have not begun" in remarks


def test_measurements_of_the_gradient_are_sent_to_their_own_table(tmp_path, capsys):
    generate_run(tmp_path / "noise", SyntheticRun(intervals=12))
    config = tmp_path / "noise" / "config.yaml"
    config.write_text(config.read_text().replace("kind: pretrain", "kind: gns"))
    assert main(["cells", str(tmp_path / "noise")]) == 2
    assert "ditbench noise" in capsys.readouterr().err
