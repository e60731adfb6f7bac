"""Closing an attempt: its last event, the reason of a failure, the requeue."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import ConfigError
from runs.__main__ import main
from runs.attempt.close import close_attempt, has_ended
from runs.folder import RunFolder
from runs.records import RecordWriter
from tests.runs.conftest import begin

pytestmark = pytest.mark.usefixtures("logs")


@pytest.mark.parametrize(
    ("event", "ended"), [("done", True), ("paused", True), ("stopped", True), ("started", False)]
)
def test_an_attempt_ends_once_its_ranks_record_it(config: Path, event: str, ended: bool) -> None:
    run = begin(config)
    assert not has_ended(run.attempt(1))
    run.record_event(1, event, step=0)
    assert has_ended(run.attempt(1)) is ended
    assert main(["ended", str(run.attempt(1))]) == int(not ended)


def attempts_of_one_job(run: RunFolder, monkeypatch, *saved_steps: int | None) -> None:
    """Begin attempts of a job that Slurm requeued; each saves up to a step and pauses."""
    step = 0
    for number, saved in enumerate(saved_steps, start=1):
        if number > 1:
            monkeypatch.setenv("SLURM_RESTART_COUNT", str(number - 1))
            begin(run.path)
        writer = RecordWriter(run.path, attempt=number)
        writer.event("started", step=step)
        if saved is not None:
            step = saved
            writer.event("saved", step=step)
        writer.event("paused", step=step)


@pytest.mark.parametrize("mark", ["attempts/001/CANCEL", "STOP", None])
def test_a_request_that_comes_after_the_ranks_have_paused_stops_the_run(
    config: Path, command: Callable[[str, str], Path], monkeypatch, mark: str | None
) -> None:
    run = begin(config)
    attempts_of_one_job(run, monkeypatch, 5)
    if mark:
        (run.path / mark).touch()
    else:
        monkeypatch.setenv("ENVIRONMENT", "BATCH")
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        command("squeue", "echo COMPLETING 0 None")
    verdict = close_attempt(run.attempt(1), status=0)
    assert (verdict.event, verdict.next) == ("stopped", "end")
    assert list(run.records())[-1]["step"] == 5


def test_three_attempts_without_progress_end_a_run_as_failed(config: Path, monkeypatch) -> None:
    run = begin(config)
    attempts_of_one_job(run, monkeypatch, 5, None, None, None)
    verdict = close_attempt(run.attempt(4), status=0)
    assert (verdict.event, verdict.next) == ("failed", "end")
    last = list(run.records())[-1]
    assert last["message"] == "3 attempts in a row saved nothing new"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "4")
    with pytest.raises(ConfigError, match="3 attempts in a row"):
        begin(run.path)
    assert run.attempts() == [1, 2, 3, 4]
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    begin(run.path)
    assert run.attempts() == [1, 2, 3, 4, 5]


def test_an_old_attempt_does_not_decide_for_a_newer_one(config: Path) -> None:
    run = begin(config)
    begin(run.path)
    assert close_attempt(run.attempt(1), status=1).event == "superseded"
    assert list(run.records()) == []


@pytest.mark.parametrize("command", [["close", "--status", "1"], ["ended"]])
def test_a_run_that_was_removed_is_said_to_be_gone(config: Path, capsys, command) -> None:
    run = begin(config)
    shutil.rmtree(run.path)
    capsys.readouterr()
    assert main([*command, str(run.attempt(1))]) == 2
    assert capsys.readouterr().err == f"{run.path}: the folder of the run is gone\n"
