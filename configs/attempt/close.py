"""How an attempt ended, and what is next: by its last event, its ranks' note, or Slurm's words."""

import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.attempt.pruning import settle_cell
from configs.attempt.requeue import ATTEMPTS_WITHOUT_PROGRESS, is_stalled, may_requeue
from configs.run.failures import FAILURES
from configs.run.folder import RunFolder
from configs.run.records import Record, Superseded

# The last words of a step stand at the end of its output.
_MOST_BYTES = 2**16

# What `close` makes of the last event: the exit code of the job.
_EXIT_CODES = {"done": 0, "stopped": 0, "paused": 0, "skipped": 0, "failed": 1}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How an attempt ended: its last event, the exit code that says so, and what is next.

    `faulty_node` is the one that broke down under it, which the next attempt does well to avoid.
    """

    event: str
    exit_code: int
    requeue: bool = False
    faulty_node: str = ""


def close_attempt(attempt: Path, *, status: int) -> Verdict:
    """Settle how an attempt ended, whose ranks have left with `status`.

    An attempt whose ranks wrote no last event gets `failed` here, with the reason that its
    first failing rank left in `error.json`.
    """
    run = RunFolder(attempt.parent.parent)
    number = int(attempt.name)
    if number == max(run.attempts()):
        run.note(number, ended=time.time())
    try:
        last = _last_word(run, attempt, status)
    except Superseded:
        return Verdict(event="superseded", exit_code=1)
    for other in settle_cell(run, last):
        print(f"skipped: {other} needs at least the memory that {run.name} lacked", file=sys.stderr)
    return Verdict(
        event=last["event"],
        exit_code=_EXIT_CODES[last["event"]],
        requeue=may_requeue(run, last),
        faulty_node=last.get("node", "") if last.get("reason") == "node" else "",
    )


def _last_word(run: RunFolder, attempt: Path, status: int) -> Record:
    """The event that the attempt ended with, recorded here where its ranks did not."""
    number = int(attempt.name)
    last = _last_event(run, number)
    # Where one agent dies, srun ends the ranks of the others by the signal of a scancel.
    if last and last["event"] == "stopped" and status and not _is_asked_to_stop(run, attempt):
        last = None
    if last is None:
        last = record_failure(run, number, **cause(attempt, status=status))
    if last["event"] == "paused" and is_stalled(run):
        message = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts in a row saved nothing new"
        last = record_failure(run, number, reason="timeout", message=message)
    return last


def _is_asked_to_stop(run: RunFolder, attempt: Path) -> bool:
    """Whether a person wants the run to end; the job script notes a signal that it got itself."""
    return run.stop_file.exists() or (attempt / "STOP").exists()


def _last_event(run: RunFolder, attempt: int) -> Record | None:
    """The event that an attempt ended with, where it wrote one."""
    found = [
        record
        for record in run.records()
        if record.get("attempt") == attempt and record.get("event") in _EXIT_CODES
    ]
    return found[-1] if found else None


def record_failure(run: RunFolder, attempt: int, **why: Any) -> Record:
    """Record that an attempt failed, `why` holding reason and message, and say so."""
    record = run.record_event(attempt, "failed", **why)
    print(f"failed ({why['reason']}): {why['message']}", file=sys.stderr)
    return record


def cause(attempt: Path, *, status: int) -> dict[str, Any]:
    """Reason, message, rank and node of the first failing rank, as far as there is word of it.

    `status` is what the agents left with.
    """
    note = _error_note(attempt)
    told = {name: note.get(name) for name in ("reason", "message", "rank", "node")}
    # A rank that is killed for its memory leaves no note; its peers may note that they lost it.
    if told["reason"] in (None, "nccl") and (killing := _memory_killing(attempt)):
        return {"reason": "host_oom", "message": killing}
    return told | {
        "reason": told["reason"] or "crash",
        "message": told["message"] or f"the ranks left with status {status} and said nothing",
    }


def _error_note(attempt: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((attempt / "error.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _memory_killing(attempt: Path) -> str | None:
    """The line that tells of ranks killed for the host memory they took."""
    try:
        with (attempt / "output.log").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    found = (line.strip() for line in lines if re.search(FAILURES["host_oom"].slurm, line))
    return next(found, None)
