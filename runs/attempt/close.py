"""Close an attempt: determine how it ended, and whether the job is worth another attempt.

The end is the last event of the attempt, or the note of its first failing rank, or Slurm's own
message about a memory kill.
"""

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.disk import read_end
from configs.errors import ConfigError
from runs.attempt.pruning import skip_after_alike
from runs.failures import failures
from runs.folder import RunFolder
from runs.jobs import CANCELLED
from runs.json_files import read_error_note
from runs.records import Record, Superseded

ATTEMPTS_WITHOUT_PROGRESS = 3
STALLED = {
    "reason": "timeout",
    "message": f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new",
}

# The exit code of the job by the last event of the attempt.
_EXIT_CODES = {"done": 0, "stopped": 0, "paused": 0, "skipped": 0, "failed": 1}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How an attempt ended: its last event, the exit code of the job, and whether to requeue it.

    `faulty_node` is a node that broke down during the attempt; the next one should avoid it.
    """

    event: str
    exit_code: int
    requeue: bool = False
    faulty_node: str = ""


def close_attempt(attempt: Path, *, status: int, is_cancelled: bool = False) -> Verdict:
    """Record how an attempt ended; `status` is the exit status of its ranks.

    If a person stopped the run after its ranks had paused, such as by cancelling the job, record
    `stopped`: a requeue would undo that. If they wrote no last event, record `failed` with the
    reason that the first failing rank left in `error.json`.
    """
    run, number = _of_attempt(attempt)
    if number == max(run.attempts()):
        run.note(number, ended=time.time())
    try:
        last = _final_event(run, attempt, status)
        is_cancelled |= (attempt / CANCELLED).exists() or run.stop_file.exists()
        if last["event"] == "paused" and is_cancelled:
            last = run.record_event(number, "stopped", step=last.get("step"))
    except Superseded:
        return Verdict(event="superseded", exit_code=1)
    requeue = _may_requeue(run, last)
    if not requeue and (stopped := skip_after_alike(run, last)):
        print(stopped, file=sys.stderr)
    return Verdict(
        event=last["event"],
        exit_code=_EXIT_CODES[last["event"]],
        requeue=requeue,
        faulty_node=last.get("node", "") if last.get("reason") == "node" else "",
    )


def _of_attempt(attempt: Path) -> tuple[RunFolder, int]:
    """Return the run and the number of an attempt; raise `ConfigError` if its folder is gone."""
    if not re.fullmatch("[0-9]{3,}", attempt.name):
        raise ConfigError(f"{attempt}: not the folder of an attempt, RUN/attempts/NNN")
    if not attempt.is_dir():
        raise ConfigError(f"{attempt.parent.parent}: the folder of the run is gone")
    return RunFolder(attempt.parent.parent), int(attempt.name)


def _final_event(run: RunFolder, attempt: Path, status: int) -> Record:
    """Return the event that ended the attempt; record one if its ranks did not."""
    number = int(attempt.name)
    last = _last_event(run, number)
    # If one agent dies, srun ends the ranks of the others with the same signal as scancel does.
    if last and last["event"] == "stopped" and status and not _stop_was_requested(run, attempt):
        last = None
    if last is None:
        last = record_failure(run, number, **cause(attempt, status=status))
    if last["event"] == "paused" and is_stalled(run):
        last = record_failure(run, number, **STALLED)
    return last


def _stop_was_requested(run: RunFolder, attempt: Path) -> bool:
    """Return whether a person stopped the run; the job script notes a signal sent to itself."""
    return run.stop_file.exists() or (attempt / "STOP").exists()


def _last_event(run: RunFolder, attempt: int) -> Record | None:
    """Return the event with which the ranks ended the attempt, or None."""
    found = [
        record
        for record in run.records()
        if record.get("attempt") == attempt and record.get("event") in _EXIT_CODES
    ]
    return found[-1] if found else None


def has_ended(attempt: Path) -> bool:
    """Return whether the ranks recorded an orderly end of the attempt."""
    last = _last_event(*_of_attempt(attempt))
    return last is not None and last["event"] in ("done", "paused", "stopped")


def record_failure(run: RunFolder, attempt: int, **why: Any) -> Record:
    """Record and print that an attempt failed; `why` holds at least reason and message."""
    record = run.record_event(attempt, "failed", **why)
    print(f"failed ({why['reason']}): {why['message']}", file=sys.stderr)
    return record


def cause(attempt: Path, *, status: int) -> dict[str, Any]:
    """Return reason, message, rank and node of the first failing rank, as far as they are known.

    `status` is the exit status of the torchrun agents.
    """
    note = read_error_note(attempt)
    found = {name: note.get(name) for name in ("reason", "message", "rank", "node")}
    # A rank that is killed for its memory leaves no note; its peers may note that they lost it.
    if found["reason"] in (None, "nccl") and (line := _memory_kill(attempt)):
        return {"reason": "host_oom", "message": line}
    return found | {
        "reason": found["reason"] or "crash",
        "message": found["message"] or f"the ranks left with status {status} and no message",
    }


def _memory_kill(attempt: Path) -> str | None:
    """Return the line of output that reports ranks killed for using too much host memory."""
    # The cause of death is at the end.
    lines = read_end(attempt / "output.log").splitlines()
    found = (line.strip() for line in lines if re.search(failures()["host_oom"].slurm, line))
    return next(found, None)


def _may_requeue(run: RunFolder, last: Record) -> bool:
    """Return whether Slurm should start the run again after its attempt ended with `last`."""
    if last["event"] == "paused":
        return not is_stalled(run)
    if last["event"] == "failed" and last["reason"] == "node":
        # Not the fault of the run, which may complete no step until it leaves that node.
        return not is_stalled(run)
    if last["event"] == "failed" and failures()[last["reason"]].can_pass:
        return _progress(run).get(last["attempt"], 0) > 0
    return False


def is_stalled(run: RunFolder) -> bool:
    """Return whether the last `ATTEMPTS_WITHOUT_PROGRESS` attempts saved nothing new.

    An attempt that a person began restarts the count: the cause may have been fixed.
    """
    progress = _progress(run)
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


def _progress(run: RunFolder) -> dict[int, int]:
    """Return, by attempt, the steps that it added to those saved before."""
    began: dict[int, int] = {}
    added: dict[int, int] = {}
    for record in run.records():
        if record.get("event") == "started":
            began[record["attempt"]] = record.get("step", 0)
        elif record.get("event") == "saved":
            # The steps of a program that is not ours are unknown: one save counts as one.
            step = record.get("step", 1)
            added[record["attempt"]] = step - began.get(record["attempt"], 0)
    return added
