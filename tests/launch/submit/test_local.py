"""`--local` runs a config on this machine, in the background."""

import json
import os
import secrets
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main as analyse
from launch.slurm.client import Refused
from launch.submit.local import check_no_process
from runs.folder import ROOT, RunFolder
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS
from tests.real_runs import body, events, files_with, finished, losses, newest_run
from tests.slurm.cluster import wait_until

# Made at run time, because a run keeps its code, which includes the tests.
CANARY = secrets.token_hex(16)
SMALLEST = (
    "model.width=32", "model.heads=4", "model.depth=1", "train.steps=10", "train.global_batch=16",
    "sample.per_class=1", "sample.steps=2",
)  # fmt: skip


def submitted(*words: str) -> list[str]:
    """Submit digits by a launcher that exits; return the lines that it printed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_TOKEN": CANARY}
    command = (sys.executable, "-m", "launch", "submit", DIGITS, "--local", *SMALLEST, *words)
    done = finished(*command, cwd=ROOT, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def started(site: Path) -> RunFolder:
    """Return a run started by a launcher that has exited."""
    run, process = submitted()
    assert process.startswith("process: ")
    return RunFolder(Path(run.removeprefix("run: ")))


def test_a_local_run_outlives_the_launcher_and_reaches_done(started: RunFolder, launch) -> None:
    wait_until(lambda: events(started)[-1] == "done", timeout=240, what=log(started))
    assert events(started) == ["queued", "started", "saved", "done"]
    _, out, _ = launch("status", started.path, "--json")
    (row,) = json.loads(out)
    assert (row["state"], row["steps"], row["attempts"]) == ("done", "10/10", 1)
    assert launch("tail", started.path)[0] == 0
    assert not list(started.path.parent.rglob("*.pkl"))
    assert files_with(CANARY, started.path.parent) == []
    assert files_with("digits", started.path.parent)


def log(run: RunFolder) -> str:
    return "".join(file.read_text() for file in (run.path / "jobs").glob("*.out"))


def test_a_process_that_begins_has_no_command_yet_and_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [b"", b"", b"bash\0jobs/cells.sh\0"]
    monkeypatch.setattr(Path, "read_bytes", lambda path: answers.pop(0))
    study = StudyFolder(tmp_path)
    study.jobs.mkdir()
    (study.jobs / "1234.cells").touch()
    with pytest.raises(Refused, match="process 1234 already runs it here"):
        check_no_process(study)


def test_a_local_study_runs_cell_by_cell_and_gets_a_report(site: Path, launch) -> None:
    lines = submitted("optimizer.lr=1e-4,3e-4")
    study, process = (line.partition(": ")[2] for line in lines)
    code, _, err = launch("submit", study)
    assert (code, f"process {process} already runs it here" in err) == (1, True)
    wait_for(process)
    _, out, err = launch("status", study, "--json")
    assert [row["state"] for row in json.loads(out)] == ["done", "done"]
    assert err.endswith(f": 2 runs: 2 done\nreport: {study}/report.html\n")
    assert (Path(study) / "cells.txt").read_text()
    assert not list(site.rglob("*.pkl"))


@pytest.mark.long
def test_an_interleaved_study_survives_a_cancel_and_compares_its_rounds(
    site: Path, launch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALLEST, "train.steps=80", "log.every=1", "data.workers=0,1", "report=false"]
    _, out, _ = launch("submit", DIGITS, "--local", *words, "interleave=20")
    study, process = (line.partition(": ")[2] for line in out.splitlines())
    runs = [RunFolder(path) for path in sorted(Path(study, "cells").iterdir())]
    wait_until(lambda: sum(len(run.attempts()) for run in runs) >= 3, timeout=600)
    launch("cancel", study)
    wait_for(process)
    assert {list(run.records())[-1]["event"] for run in runs} == {"stopped"}
    _, out, _ = launch("submit", study, "--local")
    wait_for(out.splitlines()[1].partition(": ")[2])
    assert [losses(run) == losses(runs[0]) for run in runs] == [True, True]
    whole = body(DIGITS, *SMALLEST, "train.steps=80", "log.every=1", logs=site / "whole")
    assert "done" in whole.stdout
    assert losses(newest_run(site / "whole")) == losses(runs[0])
    assert analyse(["cells", study, "--json"]) == 0
    base, other = json.loads(capsys.readouterr().out)["cells"]
    assert "word" not in base
    assert (other["unit"], other["n"] >= 3) == ("round", True)


def wait_for(process: str) -> None:
    wait_until(lambda: not Path("/proc", process).exists(), timeout=600, what="the process")
