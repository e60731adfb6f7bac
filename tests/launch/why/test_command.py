"""`launch why` lists attempts, groups the runs of a study, and prints nothing that acts."""

import json
from pathlib import Path

from runs.folder import RunFolder
from runs.records import RecordWriter
from runs.study_folder import StudyFolder, StudyRow
from tests.launch.why.conftest import Launch, fail, record, write_log


def test_attempts_without_progress_are_listed(run: RunFolder, launch: Launch) -> None:
    record(run, "paused", step=1)
    run.attempt(2).mkdir()
    writer = RecordWriter(run.path, attempt=2)
    writer.event("failed", reason="timeout", message="3 attempts in a row saved nothing new")
    writer.close()
    code, out, _ = launch("why", run.path)
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first == "digits-71, attempt 1: asked to pause"
    assert second == "digits-71, attempt 2: no progress"


def test_a_run_without_an_end_is_unknown_without_slurm(run: RunFolder, launch: Launch) -> None:
    code, out, _ = launch("why", run.path)
    assert code == 0
    assert "unknown: no end is recorded, and Slurm knows no job of the run" in out


def test_terminal_escapes_in_logs_are_not_printed(run: RunFolder, launch: Launch) -> None:
    fail(run, rank=0, reason="crash", message="\x1b[2J evil")
    write_log(run, "output.log", "Traceback \x1b[31mRuntimeError: \x07bell")
    assert "\x1b" not in launch("why", run.path)[1]


def test_a_folder_that_is_not_a_run_is_refused(launch: Launch, tmp_path: Path) -> None:
    code, _, err = launch("why", tmp_path)
    assert code == 2
    assert "nor a job id" in err


def test_a_study_tells_runs_that_failed_alike_once(site: Path, launch: Launch) -> None:
    study = StudyFolder(site / "grid-1")
    study.jobs.mkdir(parents=True)
    study.write_rows(
        StudyRow(index=i, order=i, cell=f"c{i}", repeat=1, shape="s", digest="d", levels={})
        for i in range(8)
    )
    for i in range(8):
        path = study.cell(f"c{i}")
        (path / "attempts" / "001").mkdir(parents=True)
        (path / "config.yaml").write_text("train: {steps: 5}\n")
        if i < 6:
            message = f"KeyError: 'weights of rank {i}'"
            record(RunFolder(path), "failed", reason="crash", message=message)
        else:
            record(RunFolder(path), "done", step=5)
    code, out, err = launch("why", study.path)
    assert code == 0
    assert "8 runs: 6 failed, 2 done" in err
    lines = out.splitlines()
    assert lines[0] == "6 ended alike: c0, c1, c2, c3, c4 and 1 more; the first:"
    assert out.count("KeyError") == 1
    assert lines[-1] == f"all of them again: ditbench rerun {study.path}"
    (group,) = json.loads(launch("why", study.path, "--json")[1])
    assert (len(group["runs"]), group["cause"]) == (6, "crash")
    code, _, err = launch("tail", study.path)
    assert code == 1
    assert err == f"{study.path}: none of its 8 runs is running now: 6 failed, 2 done\n"
