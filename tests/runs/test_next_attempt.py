"""A run that is done, failed or was asked to stop begins another attempt, or refuses it."""

import time
from pathlib import Path

import pytest

from configs.errors import ConfigError
from runs.attempt.open import open_attempt
from runs.records import RecordWriter
from tests.runs.conftest import begin

pytestmark = pytest.mark.usefixtures("logs")


@pytest.mark.parametrize(
    ("event", "goes_on"),
    [("paused", True), ("queued", True), ("failed", False), ("stopped", False)],
)
def test_a_run_that_failed_or_was_stopped_takes_no_more_turns(
    config: Path, monkeypatch: pytest.MonkeyPatch, event: str, goes_on: bool
) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event(event, reason="crash")
    monkeypatch.setenv("DITBENCH_TURN", "1120-093000-1a2b:5")
    attempt = open_attempt(run.path, [])
    assert (attempt is not None) == goes_on
    assert [entry.get("turn") for entry in run.entries()][1:] == ["1120-093000-1a2b:5"] * goes_on
    monkeypatch.delenv("DITBENCH_TURN")
    assert open_attempt(run.path, []) is not None


def test_a_done_run_is_unchanged_until_it_gets_more_steps(config: Path) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event("done", step=10)
    assert open_attempt(run.path, []) is None
    assert open_attempt(run.path, ["train.steps=11"]) is not None
    assert run.attempts() == [1, 2]


def test_a_queued_run_that_its_job_cannot_start_has_failed(config: Path, monkeypatch) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event("queued")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with pytest.raises(ConfigError, match="does not divide over 3 data ranks"):
        begin(run.path, gpus=3)
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "config")
    assert "does not divide" in last["message"]


def test_starting_a_stopped_run_removes_its_stop_file(config: Path) -> None:
    run = begin(config)
    run.stop_file.touch()
    begin(run.path)
    assert not run.stop_file.exists()


def test_a_stop_that_comes_after_the_start_of_the_job_ends_it_before_an_attempt(
    config: Path, capsys
) -> None:
    run = begin(config)
    run.stop_file.touch()
    assert open_attempt(run.path, [], began=time.time() - 60) is None
    assert (run.attempts(), list(run.records())[-1]["event"]) == ([1], "stopped")
    assert "stopped before it began (file STOP)" in capsys.readouterr().err
    begin(run.path)
    assert run.attempts() == [1, 2]


@pytest.mark.parametrize("restarts", [None, "1"])
def test_a_stop_of_a_queued_or_requeued_job_is_obeyed_when_it_starts(
    config: Path, monkeypatch, restarts: str | None
) -> None:
    run = begin(config)
    run.record_event(1, "queued" if restarts is None else "paused", step=3)
    time.sleep(0.05)  # the clock of a file system may lag behind that of the records
    run.stop_file.touch()
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    if restarts:
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    assert open_attempt(run.path, [], began=time.time() + 60) is None
    last = list(run.records())[-1]
    assert (last["event"], last.get("step"), run.attempts()) == ("stopped", 3, [1])
    # Somebody submits it again.
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    begin(run.path)
    assert (run.attempts(), run.stop_file.exists()) == ([1, 2], False)
