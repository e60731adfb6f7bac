"""`status` for people: step rate and eta, and a table that is redrawn."""

import json
from pathlib import Path

import pytest

from launch.__main__ import main
from launch.status.state import step_rate
from launch.status.watch import ChangeLog, Screen, watch
from runs.folder import RunFolder
from tests.launch.status.test_state import sample_run


def add_steps(run: RunFolder, *times: tuple[float, int], attempt: int = 1) -> None:
    """Append step records at these (seconds, step)."""
    with run.metrics_file.open("a") as file:
        for at, step in times:
            record = {"time": at, "attempt": attempt, "step": step, "images": step, "loss": 1.0}
            file.write(json.dumps(record) + "\n")


def test_the_step_rate_is_that_of_the_newest_records_of_the_newest_attempt() -> None:
    assert step_rate([]) is None
    records = [{"time": at, "attempt": 1, "step": step} for at, step in [(0.0, 0), (1.0, 1000)]]
    assert step_rate(records) == 1000
    records.append({"time": 2.0, "attempt": 2, "event": "started"})
    assert step_rate(records) is None
    for i in range(100):
        records.append({"time": 50.0 + i, "attempt": 2, "step": 1000 + i * (1 if i < 50 else 4)})
    assert step_rate(records) == pytest.approx(4)


def test_on_a_terminal_the_table_is_redrawn_until_all_runs_have_ended(
    command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("squeue", f"echo x >>{tmp_path}/queries; echo '7|PENDING||||BeginTime'")
    run = sample_run("started", "paused")
    add_steps(run, (100.0, 100))
    watch([run.path], on=Screen(), pause=lambda _: run.record_event(1, "done", step=600))
    _, first, last = capsys.readouterr().out.split("\x1b[H\x1b[2J")
    assert "requeued" in first
    assert "done" in last
    assert (tmp_path / "queries").read_text() == "x\n"


def test_in_a_pipe_waiting_prints_changes_and_returns_whether_all_are_done(
    command, capsys: pytest.CaptureFixture[str]
) -> None:
    command("squeue", "exit 0")
    runs = [
        sample_run("started", job=None),
        sample_run("started", "failed", job=None, reason="nan"),
    ]

    def pause(seconds: float) -> None:
        assert seconds == 10
        if pauses.pop():
            runs[0].record_event(1, "done", step=600)

    pauses = [True, False]
    now = watch([run.path for run in runs], on=ChangeLog(), pause=pause)
    out = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    names = [run.path for run in runs]
    assert out == [f"{names[0]}: started", f"{names[1]}: failed", f"{names[0]}: done"]
    assert [one.state.name for one in now] == ["done", "failed"]
    assert launched(runs, "--wait") == 1
    assert launched(runs[:1], "--wait") == 0


def launched(runs: list[RunFolder], *words: str) -> int:
    return main(["status", *(str(run.path) for run in runs), *words])
