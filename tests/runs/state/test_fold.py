"""The one fold: its tables as a whole, and what each reader of a state relies on."""

import itertools
from pathlib import Path

import pytest

from configs.schema import KINDS, keys
from launch.status.state import GROUPS
from runs.folder import RunFolder
from runs.records import EVENTS
from runs.state.evidence import Evidence
from runs.state.fold import NEXT, STATES, TRANSITIONS, WITH_SLURM, fold
from runs.state.reasons import failures, reasons
from runs.state.slurm_job import ENDED, SlurmJob

# A record that brings a run from `new` to each state.
TO = {
    "new": [],
    "queued": ["queued"],
    "started": ["started"],
    "paused": ["started", "paused"],
    "stopped": ["started", "stopped"],
    "done": ["started", "done"],
    "failed": ["started", "failed"],
    "skipped": ["queued", "skipped"],
}
PENDING = SlurmJob(state="PENDING", reason="BeginTime")


def records(*events: str, attempt: int = 1) -> list[dict[str, object]]:
    why = {"failed": {"reason": "crash", "message": "m"}}
    return [
        {"event": event, "time": float(n), "attempt": attempt} | why.get(event, {})
        for n, event in enumerate(events)
    ]


def expected(state: str, event: str) -> str:
    """The rules behind the table: the last event counts, but for two that stand."""
    if event not in STATES:
        return state
    if state == "done" and event not in ("queued", "started"):
        return "done"
    return "stopped" if (state, event) == ("stopped", "paused") else event


@pytest.mark.parametrize(("state", "event"), itertools.product(TO, EVENTS))
def test_every_event_in_every_state_leads_where_the_table_says(state: str, event: str) -> None:
    assert fold(records(*TO[state])).name == state
    assert fold(records(*TO[state], event)).name == expected(state, event)


def test_the_tables_cover_every_state_and_event() -> None:
    rows = [line.split() for line in TRANSITIONS.strip().splitlines()]
    assert {row[0] for row in rows[1:]} == {"new", *STATES}
    assert set(STATES) < set(EVENTS)
    assert {name for row in rows[1:] for name in row} <= {"new", *STATES}
    by_slurm = {name for line in WITH_SLURM.strip().splitlines()[1:] for name in line.split()}
    assert {*by_slurm, "new", *STATES} == set(GROUPS) == {*NEXT, "failed"}


@pytest.mark.parametrize(
    ("state", "pending", "running", "over", "unknown"),
    [
        ("new", "queued", "starting", "ended", "lost"),
        ("queued", "queued", "starting", "ended", "lost"),
        ("started", "requeued", "running", "ended", "lost"),
        ("paused", "requeued", "paused", "ended", "lost"),
        ("stopped", *["stopped"] * 4),
        ("done", *["done"] * 4),
        ("failed", *["failed"] * 4),
        ("skipped", *["skipped"] * 4),
    ],
)
def test_slurm_completes_a_record_without_an_end(
    state: str, pending: str, running: str, over: str, unknown: str
) -> None:
    def name(job: SlurmJob) -> str:
        return fold(records(*TO[state]), job).name

    assert name(PENDING) == name(SlurmJob(state="REQUEUED")) == pending
    assert name(SlurmJob(state="RUNNING")) == running
    assert {name(SlurmJob(state=ended)) for ended in ENDED} == {over}
    assert name(SlurmJob()) == unknown


def test_a_failure_that_slurm_requeues_waits_for_its_next_start() -> None:
    saved = [*records("started"), {"event": "saved", "step": 5, "time": 1.0, "attempt": 1}]
    failed = [*saved, *records("failed")]
    assert fold(failed).next == "requeue"
    assert (fold(failed, PENDING).name, fold(failed, PENDING).next) == ("requeued", "start")


def test_the_word_of_a_job_without_a_recorded_end_is_slurms() -> None:
    assert fold(records("started"), SlurmJob(state="NODE_FAIL")).word == "node fail"
    assert fold(records("started"), SlurmJob(state="COMPLETING")).word == "completing"


def test_a_rank_that_outlives_its_attempt_changes_nothing() -> None:
    late = records("done", attempt=1)
    assert fold([*records("started"), *records("started", attempt=2), *late]).name == "started"
    # The body of a job that could not start records its end under the attempt before it.
    assert fold([*records("queued", attempt=2), *records("failed", attempt=1)]).name == "failed"


@pytest.mark.parametrize("reason", failures())
def test_a_recorded_reason_is_the_one_that_shows(reason: str, tmp_path: Path) -> None:
    end = {"event": "failed", "reason": reason, "message": "m", "time": 2.0, "attempt": 1}
    process = Evidence(run=RunFolder(tmp_path), attempt=1)
    assert fold([*records("started"), end], process=process).reason == reason


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_advice_names_a_key_that_the_kind_lacks(kind: str) -> None:
    """Every key=VALUE of an advice is a key of the kind of run that gets it."""
    known = set(keys(kind))
    for reason in reasons().values():
        advice = reason.advice_for(kind)
        named = {
            word.partition("=")[0].strip("(")
            for word in advice.split()
            if "=" in word and not word.startswith("-")
        }
        assert named <= known, (reason.name, advice)


def test_failures_that_can_pass_are_requeued_after_progress_and_others_are_not() -> None:
    for reason in failures():
        end = {"event": "failed", "reason": reason, "time": 2.0, "attempt": 1}
        saved = {"event": "saved", "step": 5, "time": 1.0, "attempt": 1}
        found = reasons()[reason]
        without = fold([*records("started"), end]).next
        after = fold([*records("started"), saved, end]).next
        assert after == ("requeue" if found.passes else "change")
        assert without == (after if found.at_once or not found.passes else "resume")


def test_processes_that_left_without_a_record_have_failed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    found = fold(records("started"), process=Evidence(run=run, attempt=1, status=1))
    assert (found.name, found.reason, "time" in found.last) == ("failed", "crash", False)
    goes_on = fold(records("started"), SlurmJob(state="RUNNING"), Evidence(run=run, attempt=1))
    assert (goes_on.name, goes_on.reason) == ("started", None)
