"""A study becomes a folder and an array per resource shape. Slurm is a shell script."""

import os
import re
import sys
from pathlib import Path

import pytest

from configs.load import read_tree
from runs.folder import ROOT, RunFolder, find_runs
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS
from tests.launch.study_sandbox import _slurm, array_lines, study, submitted
from tests.launch.submit.test_script import GOLDEN, executed, stable

__all__ = ["_slurm", "study"]


def test_the_scripts_of_a_study_match_the_golden_text(
    study: Path, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.submit.study.new_id", lambda: "1120-093000-1a2b")
    code, out, _ = launch("plan", study, "--script", "--", "--account=lab_1", "--exclusive")
    assert code == 0
    golden = GOLDEN / "study.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(stable(out, tmp_path))
    assert stable(out, tmp_path) == golden.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands", "gpus.yaml"]


def test_a_script_gets_the_results_as_shell_assignments(study: Path, launch, site: Path) -> None:
    code, said, _ = launch("submit", "--shell", study)
    names = dict(line.split("=", 1) for line in said.splitlines())
    assert (code, Path(names["STUDY"]).parent, names["REPORT"]) == (0, site, "103")
    assert names["ARRAY"] == "'102 (4 runs, 1x1-a40-4.0h-8cpu)'"


def test_a_study_becomes_a_folder_two_arrays_and_a_report(
    study: Path, launch, site: Path, tmp_path: Path
) -> None:
    code, out, err = launch("submit", study)
    folder = StudyFolder(Path(out.splitlines()[0].removeprefix("study: ")))
    assert out.splitlines()[1:] == [
        "array: 101 (4 runs, 1x1-a100-4.0h-8cpu)",
        "array: 102 (4 runs, 1x1-a40-4.0h-8cpu)",
        "report: 103",
    ]
    assert (code, folder.path.parent) == (0, site)
    assert array_lines(tmp_path) == ["0-3%3", "0-3%3", ""]
    rows = folder.rows()
    assert [row.index for row in rows] == list(range(8))
    assert sorted(row.order for row in rows) == list(range(8))
    assert {row.shape for row in rows[:4]} == {"1x1-a100-4.0h-8cpu"}
    assert {(row.cell, row.repeat) for row in rows} == {
        (f"{gpu}_bs{batch}{again}", repeat)
        for gpu in ("a40", "a100") for batch in (8, 16) for again, repeat in (("", 1), ("_r2", 2))
    }  # fmt: skip
    for row in rows:
        run = RunFolder(folder.cell(row.cell))
        config = run.config()
        assert (config.resources.gpu, config.question) == (
            row.levels["resources.gpu"],
            "Which GPU?",
        )
        assert config.train.global_batch == row.levels["train.global_batch"]
        assert [record["event"] for record in run.records()] == ["queued"]
    assert "#SBATCH --dependency=afterany:101:102" in (tmp_path / "103.sbatch").read_text()
    assert (tmp_path / "102.sbatch").read_text() == (folder.jobs / "102.sbatch").read_text()
    assert "export FIRST_CELL=4\n" in (tmp_path / "102.sbatch").read_text()
    assert "intervals of 2 are very wide: set repeats=3 or more" in err
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.path.rglob("*"))


def test_repeats_are_passes_over_all_cells_and_shapes_keep_that_order(study: Path, launch) -> None:
    rows = submitted(launch, study).rows()
    by_order = sorted(rows, key=lambda row: row.order)
    assert [row.repeat for row in by_order] == [1] * 4 + [2] * 4
    for shape in {row.shape for row in rows}:
        orders = [row.order for row in rows if row.shape == shape]
        assert orders == sorted(orders)


def test_several_values_on_a_plain_config_are_a_study(launch, site: Path) -> None:
    folder = submitted(launch, DIGITS, "optimizer.lr=1e-4,3e-4", "repeats=2", "train.steps=7")
    assert folder.path.name.startswith("digits-")
    assert len(find_runs(folder.path)) == 4
    assert read_tree(folder.study_file)["axes"] == {"optimizer.lr": [1e-4, 3e-4]}
    run = RunFolder(folder.cell("lr0.0003_r2")).config()
    assert (run.optimizer.lr, run.train.steps) == (3e-4, 7)


def test_a_refusal_of_the_first_array_leaves_nothing(
    study: Path, launch, command, site: Path
) -> None:
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo QOSMaxSubmitJob >&2; exit 1")
    code, _, err = launch("submit", study)
    assert (code, "QOSMaxSubmitJob" in err) == (1, True)
    assert [path.name for path in site.iterdir()] == [".code"]


def test_an_array_is_no_larger_than_the_cluster_allows(
    study: Path, launch, command, tmp_path: Path
) -> None:
    command("scontrol", "echo 'MaxArraySize = 3'")
    submitted(launch, study)
    assert array_lines(tmp_path) == ["0-2%3", "0%3", "0-2%3", "0%3", ""]


def test_a_study_may_have_no_throttle_and_no_report(study: Path, launch, tmp_path: Path) -> None:
    submitted(launch, study, "throttle=null", "report=false")
    assert array_lines(tmp_path) == ["0-3", "0-3"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.global_batch=7,9", "resources.nodes=2"], "cell a40_bs7: train.global_batch 7"),
        (["data.source=folder", "data.path=/nope"], "/nope: no such folder"),
    ],
)
def test_an_invalid_study_is_misuse_before_anything_is_written(
    words: list[str], message: str, study: Path, launch, site: Path
) -> None:
    code, out, err = launch("submit", study, *words)
    assert (code, out, message in err) == (2, "", True)
    assert not site.exists()


def test_the_array_runs_the_template_of_a_snapshot_on_the_folder(
    study: Path, launch, tmp_path: Path
) -> None:
    folder = submitted(launch, study)
    shell, script, source = executed((tmp_path / "101.sbatch").read_text(), tmp_path)
    assert (shell, source) == ("bash", str(folder.path))
    assert re.fullmatch(r".*/logs/\.code/[0-9a-f]{16}/jobs/pretrain\.sbatch", script)
    assert (ROOT / "jobs" / "report.sbatch").exists()
    assert sys.prefix in (tmp_path / "103.sbatch").read_text()


def test_a_refused_report_is_only_a_remark(study: Path, launch, command) -> None:
    command(
        "sbatch",
        """[[ $1 == --test-only ]] && exit 0
        ! grep -q afterany "$1" || { echo no CPU jobs here >&2; exit 1; }
        echo Submitted batch job 7""",
    )
    code, out, err = launch("submit", study)
    assert (code, "report: " in out) == (0, False)
    assert "no report is queued: sbatch refuses the job: no CPU jobs here" in err
    assert "make it with: bash jobs/report.sbatch /" in err


def test_a_cancelled_study_whose_cell_still_saves_is_said_to_end_soon(
    study: Path, launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = submitted(launch, study)
    monkeypatch.setattr("launch.submit.local._is_ours", lambda pid: True)
    (folder.jobs / "77.cells").touch()
    (folder.jobs / "².cells").touch()
    assert "already runs it here; wait, or end it" in launch("rerun", folder.path)[2]
    folder.stop_file.touch()
    code, _, err = launch("rerun", folder.path)
    assert (code, "it was cancelled, and its cell still saves; try again" in err) == (1, True)
