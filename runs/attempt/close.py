"""Close an attempt: record how it ended, and say whether the job is worth another attempt."""

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from configs.disk import read_end
from configs.errors import ConfigError
from runs.folder import ROOT, RunFolder
from runs.json_files import read_error_note
from runs.records import Record, Superseded
from runs.slurm_env import batch_job
from runs.state.evidence import Evidence
from runs.state.fold import fold
from runs.state.log_lines import LogLines
from runs.state.reasons import reasons
from runs.state.run_state import RunState

ATTEMPTS_WITHOUT_PROGRESS = 3
STALLED = {
    "reason": "timeout",
    "message": f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How an attempt ended: its last event, and what the job does next.

    After a run is done, its study may be settled. `faulty_node` is a node that broke down during
    the attempt; the next one should avoid it.
    """

    event: str
    next: Literal["requeue", "settle", "end"] = "end"
    faulty_node: str = ""


def close_attempt(attempt: Path, *, status: int) -> Verdict:
    """Record how an attempt ended; `status` is the exit status of its ranks.

    If the ranks wrote no last event, record `failed` with the reason that their traces show. If a
    person has stopped the run since, such as by cancelling its job, record `stopped`: a requeue
    would undo that.
    """
    run, number = _of_attempt(attempt)
    if number == max(run.attempts()):
        run.note(number, ended=time.time())
    try:
        state = _final_state(run, attempt, status)
    except Superseded:
        return Verdict(event="superseded")
    is_worthwhile = state.next == "requeue" and not is_stalled(run)
    is_faulty = state.is_failed and state.reason == "node"
    return Verdict(
        event=state.name,
        next="requeue" if is_worthwhile else "settle" if state.is_done else "end",
        faulty_node=state.last.get("node", "") if is_faulty else "",
    )


def _of_attempt(attempt: Path) -> tuple[RunFolder, int]:
    """Return the run and the number of an attempt; raise `ConfigError` if its folder is gone."""
    if not re.fullmatch("[0-9]{3,}", attempt.name):
        raise ConfigError(f"{attempt}: not the folder of an attempt, RUN/attempts/NNN")
    if not attempt.is_dir():
        raise ConfigError(f"{attempt.parent.parent}: the folder of the run is gone")
    return RunFolder(attempt.parent.parent), int(attempt.name)


def _final_state(run: RunFolder, attempt: Path, status: int) -> RunState:
    """Return how the attempt ended; record it if its ranks did not."""
    number, output = int(attempt.name), attempt / "output.log"
    traces = Evidence(
        run=run,
        attempt=number,
        note=read_error_note(attempt),
        # The cause of death is at the end.
        logs=[LogLines(path=output, first=1, lines=tuple(read_end(output).splitlines()))],
        status=status,
    )
    state = attempt_state(run, number, process=traces)
    # The event of an end that only the traces show has no time yet.
    if "time" not in state.last:
        record_end(run, state, traces)
        state = attempt_state(run, number)
    if state.is_paused and is_stalled(run):
        record_failure(run, number, **STALLED)
        state = attempt_state(run, number)
    if state.next == "requeue" and batch_job() and ask_slurm("why_ended") == "cancelled":
        run.record_event(number, "stopped", step=state.step)
        state = attempt_state(run, number)
    return state


def ask_slurm(function: str) -> str | None:
    """Return what a function of jobs/requeue.sh prints, None if it fails."""
    words = ["bash", "-c", 'source "$0"; "$1"', str(ROOT / "jobs" / "requeue.sh"), function]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def attempt_state(run: RunFolder, attempt: int, process: Evidence | None = None) -> RunState:
    """Return the state by the records of one attempt, and the traces of its processes."""
    records = (record for record in run.records() if record["attempt"] == attempt)
    return fold(records, process=process)


def has_ended(attempt: Path) -> bool:
    """Return whether the ranks recorded an orderly end of the attempt."""
    state = attempt_state(*_of_attempt(attempt))
    return state.is_done or state.is_paused or state.is_stopped


def record_end(run: RunFolder, state: RunState, traces: Evidence) -> Record:
    """Record the end that an attempt's traces show; name the first failing rank if it is known."""
    if state.is_stopped:
        return run.record_event(traces.attempt, "stopped", step=state.step)
    note = traces.note if traces.note.get("reason") == state.reason else {}
    assert state.reason is not None
    shown = traces.first_line_like(reasons()[state.reason].pattern)
    silent = f"the ranks left with status {traces.status} and no message"
    message = note.get("message") or shown or silent
    ranks = {name: note.get(name) for name in ("rank", "node")}
    return record_failure(run, traces.attempt, reason=state.reason, message=message, **ranks)


def record_failure(run: RunFolder, attempt: int, **why: Any) -> Record:
    """Record and print that an attempt failed; `why` holds at least reason and message."""
    record = run.record_event(attempt, "failed", **why)
    print(f"failed ({why['reason']}): {why['message']}", file=sys.stderr)
    return record


def is_stalled(run: RunFolder) -> bool:
    """Return whether the last `ATTEMPTS_WITHOUT_PROGRESS` attempts saved nothing new.

    An attempt that a person began restarts the count: the cause may have been fixed.
    """
    progress = fold(run.records()).progress
    stalled = 0
    entries = {entry["attempt"]: entry for entry in run.entries()}
    for number in reversed(run.attempts()):
        if progress.get(number, 0) > 0:
            break
        stalled += 1
        # An attempt without an entry was killed before it could write one: Slurm began it.
        if number in entries and "restarts" not in entries[number].get("slurm", {}):
            break
    return stalled >= ATTEMPTS_WITHOUT_PROGRESS
