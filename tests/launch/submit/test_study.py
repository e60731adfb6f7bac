"""A study becomes a folder and a job for each run. Slurm is a shell script."""

import os
from pathlib import Path

import pytest

from configs.load import read_tree
from runs.folder import RunFolder, find_runs
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS
from tests.launch.study_sandbox import lines, submitted
from tests.launch.submit.test_script import GOLDEN, stable


def test_the_scripts_of_a_study_match_the_golden_text(
    study: Path, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.submit.request.new_id", lambda: "1120-093000-1a2b")
    code, out, _ = launch("plan", study, "--script", "--", "--account=lab_1", "--exclusive")
    assert code == 0
    golden = GOLDEN / "study.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(stable(out, tmp_path))
    assert stable(out, tmp_path) == golden.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands", "gpus.yaml"]


def test_a_study_becomes_a_folder_a_job_for_each_run_and_a_report(
    study: Path, launch, site: Path, tmp_path: Path
) -> None:
    code, out, err = launch("submit", study)
    folder = StudyFolder(Path(out.splitlines()[0].removeprefix("study: ")))
    assert out.splitlines()[1:] == ["jobs: 101 to 108 (8 runs)", "report: 109"]
    assert (code, folder.path.parent) == (0, site)
    # Three at once.
    assert lines(tmp_path)[:8] == [(str(job % 3), "singleton") for job in range(8)]
    rows = folder.rows()
    assert [(row.index, row.order) for row in rows] == [(n, n) for n in range(8)]
    assert {row.shape for row in rows} == {"1x1-a100-4.0h-8cpu", "1x1-a40-4.0h-8cpu"}
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
    assert lines(tmp_path)[8] == ("", f"afterany:{':'.join(map(str, range(101, 109)))}")
    second = RunFolder(folder.cell(rows[1].cell))
    text = (tmp_path / "102.sbatch").read_text()
    assert text == (second.path / "jobs" / "102.sbatch").read_text()
    assert f"#SBATCH --gpus-per-node={rows[1].levels['resources.gpu']}:1\n" in text
    assert f"#SBATCH --output={folder.jobs}/%x-%j.out\n" in text
    assert "intervals of 2 are very wide: set repeats=3 or more" in err
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.path.rglob("*"))


def test_several_values_on_a_plain_config_are_a_study(launch, slurm: None) -> None:
    folder = submitted(launch, DIGITS, "optimizer.lr=1e-4,3e-4", "repeats=2", "train.steps=7")
    assert folder.path.name.startswith("digits-")
    assert len(find_runs(folder.path)) == 4
    assert read_tree(folder.study_file)["axes"] == {"optimizer.lr": [1e-4, 3e-4]}
    run = RunFolder(folder.cell("lr0.0003_r2")).config()
    assert (run.optimizer.lr, run.train.steps) == (3e-4, 7)


def test_a_refusal_of_the_first_job_leaves_nothing(
    study: Path, launch, command, site: Path
) -> None:
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo QOSMaxSubmitJob >&2; exit 1")
    code, _, err = launch("submit", study)
    assert (code, "QOSMaxSubmitJob" in err) == (1, True)
    assert [path.name for path in site.iterdir()] == [".code"]


def test_a_study_may_have_no_throttle_and_no_report(study: Path, launch, tmp_path: Path) -> None:
    submitted(launch, study, "throttle=null", "report=false")
    assert lines(tmp_path) == [("", "")] * 8


def test_a_throttled_job_also_waits_for_what_the_user_names(study: Path, launch, tmp_path) -> None:
    submitted(launch, study, "throttle=7", "report=false", "--", "--dependency=afterok:5")
    assert {awaited for _, awaited in lines(tmp_path)} == {"afterok:5,singleton"}


def test_a_refused_report_is_only_a_remark(study: Path, launch, command) -> None:
    command(
        "sbatch",
        """[[ $1 == --test-only ]] && exit 0
        ! grep -q report.sbatch "$1" || { echo no CPU jobs here >&2; exit 1; }
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
