"""Whether a job is worth another attempt: while it makes progress, and not for its own faults."""

from configs.run.failures import FAILURES
from configs.run.folder import RunFolder
from configs.run.records import Record

ATTEMPTS_WITHOUT_PROGRESS = 3


def may_requeue(run: RunFolder, last: Record) -> bool:
    """Whether Slurm shall start the run again after its attempt ended with the event `last`."""
    if last["event"] == "paused":
        return not is_stalled(run)
    if last["event"] == "failed" and last["reason"] == "node":
        # No fault of the run's, which may come to no step before it is off that node.
        return not is_stalled(run)
    if last["event"] == "failed" and FAILURES[last["reason"]].can_pass:
        return _progress(run).get(last["attempt"], 0) > 0
    return False


def is_stalled(run: RunFolder) -> bool:
    """Whether the newest attempts, as many as are granted, saved nothing new.

    Attempts that a person began are counted afresh: somebody may have mended the cause.
    """
    progress = _progress(run)
    stalled = 0
    entries = {entry["attempt"]: entry for entry in run.manifest().get("attempts", [])}
    for number in reversed(run.attempts()):
        if progress.get(number, 0) > 0:
            break
        stalled += 1
        # An attempt that was killed before its entry was written was Slurm's: no person did that.
        if number in entries and "restarts" not in entries[number].get("slurm", {}):
            break
    return stalled >= ATTEMPTS_WITHOUT_PROGRESS


def _progress(run: RunFolder) -> dict[int, int]:
    """Steps that each attempt added to what was saved before."""
    began: dict[int, int] = {}
    added: dict[int, int] = {}
    for record in run.records():
        if record.get("event") == "started":
            began[record["attempt"]] = record["step"]
        elif record.get("event") == "saved":
            added[record["attempt"]] = record["step"] - began.get(record["attempt"], 0)
    return added
