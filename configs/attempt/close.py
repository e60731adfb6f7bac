"""Close an attempt: determine how it ended, and whether the job is worth another attempt.

The end is the last event of the attempt, or the note of its first failing rank, or Slurm's own
message about a memory kill.
"""

import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.attempt.pruning import prune_after
from configs.run.failures import FAILURES
from configs.run.folder import RunFolder
from configs.run.records import Record, Superseded

ATTEMPTS_WITHOUT_PROGRESS = 3
STALLED = {
    "reason": "timeout",
    "message": f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new",
}

# The cause of death is at the end of the output.
_MOST_BYTES = 2**16

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


def close_attempt(attempt: Path, *, status: int) -> Verdict:
    """Record how an attempt ended; `status` is the exit status of its ranks.

    If the ranks wrote no last event, record `failed` with the reason that the first failing rank
    left in `error.json`.
    """
    run = RunFolder(attempt.parent.parent)
    number = int(attempt.name)
    if number == max(run.attempts()):
        run.note(number, ended=time.time())
    try:
        last = _final_event(run, attempt, status)
    except Superseded:
        return Verdict(event="superseded", exit_code=1)
    for other in prune_after(run, last):
        print(f"skipped: {other} needs at least the memory that {run.name} lacked", file=sys.stderr)
    return Verdict(
        event=last["event"],
        exit_code=_EXIT_CODES[last["event"]],
        requeue=_may_requeue(run, last),
        faulty_node=last.get("node", "") if last.get("reason") == "node" else "",
    )


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
    last = _last_event(RunFolder(attempt.parent.parent), int(attempt.name))
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
    note = _error_note(attempt)
    found = {name: note.get(name) for name in ("reason", "message", "rank", "node")}
    # A rank that is killed for its memory leaves no note; its peers may note that they lost it.
    if found["reason"] in (None, "nccl") and (line := _memory_kill(attempt)):
        return {"reason": "host_oom", "message": line}
    return found | {
        "reason": found["reason"] or "crash",
        "message": found["message"] or f"the ranks left with status {status} and no message",
    }


def _error_note(attempt: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((attempt / "error.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _memory_kill(attempt: Path) -> str | None:
    """Return the line of output that reports ranks killed for using too much host memory."""
    try:
        with (attempt / "output.log").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    found = (line.strip() for line in lines if re.search(FAILURES["host_oom"].slurm, line))
    return next(found, None)


def _may_requeue(run: RunFolder, last: Record) -> bool:
    """Return whether Slurm should start the run again after its attempt ended with `last`."""
    if last["event"] == "paused":
        return not is_stalled(run)
    if last["event"] == "failed" and last["reason"] == "node":
        # Not the fault of the run, which may complete no step until it leaves that node.
        return not is_stalled(run)
    if last["event"] == "failed" and FAILURES[last["reason"]].can_pass:
        return _progress(run).get(last["attempt"], 0) > 0
    return False


def is_stalled(run: RunFolder) -> bool:
    """Return whether the last `ATTEMPTS_WITHOUT_PROGRESS` attempts saved nothing new.

    An attempt that a person began restarts the count: the cause may have been fixed.
    """
    progress = _progress(run)
    stalled = 0
    entries = {entry["attempt"]: entry for entry in run.manifest().get("attempts", [])}
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
            began[record["attempt"]] = record["step"]
        elif record.get("event") == "saved":
            added[record["attempt"]] = record["step"] - began.get(record["attempt"], 0)
    return added
