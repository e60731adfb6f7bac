"""`launch why` lists attempts, groups the runs of a study, and prints nothing that acts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.folder import RunFolder
from runs.study_folder import StudyFolder, StudyRow
from tests.launch.conftest import Launch


@pytest.fixture(autouse=True)
def _no_slurm(command: Callable[[str, str], Path]) -> None:
    """A Slurm that has forgotten every job."""
    for name in ("squeue", "sacct", "scontrol"):
        command(name, "exit 1")


def test_a_folder_that_is_not_a_run_is_refused(launch: Launch, tmp_path: Path) -> None:
    code, _, err = launch("why", tmp_path)
    assert code == 2
    assert "nor the job of one" in err


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
            RunFolder(path).record_event(1, "failed", reason="crash", message=message)
        else:
            RunFolder(path).record_event(1, "done", step=5)
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
    assert code == 2
    assert err == f"{study.path}: not a run's folder; `ditbench status` lists them\n"
