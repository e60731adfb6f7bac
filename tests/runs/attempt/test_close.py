"""Closing an attempt: its last event, the reason of a failure, the requeue."""

import shutil
from pathlib import Path

import pytest

from configs.errors import ConfigError
from runs.__main__ import main
from runs.attempt.close import close_attempt, has_ended
from runs.folder import RunFolder
from runs.records import RecordWriter
from tests.runs.conftest import begin

pytestmark = pytest.mark.usefixtures("logs")


def test_ranks_that_leave_without_an_event_have_failed(config: Path) -> None:
    run = begin(config)
    verdict = close_attempt(run.attempt(1), status=1)
    assert (verdict.event, verdict.exit_code) == ("failed", 1)
    last = list(run.records())[-1]
    assert (last["event"], last["reason"]) == ("failed", "crash")


def test_the_first_failing_rank_gives_the_reason(config: Path) -> None:
    run = begin(config)
    (run.attempt(1) / "error.json").write_text('{"reason": "data", "message": "x.png", "rank": 3}')
    close_attempt(run.attempt(1), status=1)
    last = list(run.records())[-1]
    assert (last["reason"], last["message"], last["rank"]) == ("data", "x.png", 3)


def test_a_status_of_0_without_a_last_event_is_a_failure(config: Path) -> None:
    run = begin(config)
    RecordWriter(run.path, attempt=1).event("started", step=0)
    assert close_attempt(run.attempt(1), status=0).exit_code == 1


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


def test_a_paused_run_is_requeued_and_a_stopped_one_is_not(config: Path, monkeypatch) -> None:
    run = begin(config)
    attempts_of_one_job(run, monkeypatch, 5)
    verdict = close_attempt(run.attempt(1), status=0)
    assert (verdict.event, verdict.exit_code, verdict.requeue) == ("paused", 0, True)
    RecordWriter(run.path, attempt=1).event("stopped", step=5)
    assert not close_attempt(run.attempt(1), status=0).requeue


@pytest.mark.parametrize(
    ("reason", "saved", "requeued"),
    [("crash", True, True), ("crash", False, False), ("data", True, False),
     ("config", True, False), ("nan", True, False), ("gradients", True, False),
     ("oom", True, False)],
)  # fmt: skip
def test_a_failed_run_is_requeued_only_for_a_transient_fault_after_progress(
    config: Path, reason: str, saved: bool, requeued: bool
) -> None:
    run = begin(config)
    writer = RecordWriter(run.path, attempt=1)
    writer.event("started", step=0)
    if saved:
        writer.event("saved", step=5)
    (run.attempt(1) / "error.json").write_text(f'{{"reason": "{reason}", "message": "m"}}')
    assert close_attempt(run.attempt(1), status=1).requeue is requeued


@pytest.mark.parametrize("saved", [True, False])
def test_a_faulty_node_is_named_and_the_run_is_requeued(config: Path, saved: bool) -> None:
    run = begin(config)
    writer = RecordWriter(run.path, attempt=1)
    writer.event("started", step=0)
    if saved:
        writer.event("saved", step=5)
    note = '{"reason": "node", "message": "uncorrectable ECC error", "rank": 3, "node": "n-2"}'
    (run.attempt(1) / "error.json").write_text(note)
    verdict = close_attempt(run.attempt(1), status=1)
    assert (verdict.requeue, verdict.faulty_node) == (True, "n-2")


@pytest.mark.parametrize(
    ("stop_file", "event"),
    [("attempts/001/STOP", "stopped"), ("STOP", "stopped"), (None, "failed")],
)
def test_ranks_that_stopped_because_an_agent_died_have_failed(
    config: Path, stop_file: str | None, event: str
) -> None:
    run = begin(config)
    writer = RecordWriter(run.path, attempt=1)
    for name in ("started", "saved", "stopped"):
        writer.event(name, step=5 * (name != "started"))
    if stop_file:
        (run.path / stop_file).touch()
    verdict = close_attempt(run.attempt(1), status=137)
    assert (verdict.event, verdict.requeue) == (event, stop_file is None)


def test_three_attempts_without_progress_end_a_run_as_failed(config: Path, monkeypatch) -> None:
    run = begin(config)
    attempts_of_one_job(run, monkeypatch, 5, None, None, None)
    verdict = close_attempt(run.attempt(4), status=0)
    assert (verdict.event, verdict.requeue) == ("failed", False)
    last = list(run.records())[-1]
    assert last["message"] == "3 attempts in a row saved nothing new"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "4")
    with pytest.raises(ConfigError, match="3 attempts in a row"):
        begin(run.path)
    assert run.attempts() == [1, 2, 3, 4]
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    begin(run.path)
    assert run.attempts() == [1, 2, 3, 4, 5]


def test_two_attempts_without_progress_are_tolerated(config: Path, monkeypatch) -> None:
    run = begin(config)
    attempts_of_one_job(run, monkeypatch, 5, None, None)
    assert close_attempt(run.attempt(3), status=0).requeue


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
