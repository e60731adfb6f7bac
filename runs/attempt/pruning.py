"""Cells that a study need not run: `cells --decided` skips repeats that can change no verdict."""

from collections.abc import Iterator

from runs.folder import RunFolder
from runs.records import Superseded
from runs.state.fold import run_state
from runs.state.run_state import RunState
from runs.study_folder import StudyFolder

# The reason of a repeat that is skipped because it can change no verdict (`cells --decided`).
DECIDED = "decided"
# The reasons of a lack of memory; earlier versions skipped cells that need more than one had.
_MEMORY = ("oom", "host_oom")


def waiting(study: StudyFolder) -> Iterator[RunFolder]:
    """Yield the cells that have not begun."""
    for row in study.rows():
        run = RunFolder(study.cell(row.cell))
        if not run.attempts() and run_state(run).is_queued:
            yield run


def skip(run: RunFolder, *, proof: RunFolder, message: str) -> bool:
    """Record that a repeat is skipped for the end of the cell `proof`, unless it has begun."""
    try:
        run.record_event(0, "skipped", reason=DECIDED, proof=proof.name, message=message)
    except Superseded:
        return False
    return True


def is_wanted(state: RunState, *, rerun: bool) -> bool:
    """Return whether a cell without a job is to be submitted.

    A run that ran out of memory would do so again, and a repeat that can change no verdict stays
    skipped; `rerun` includes both.
    """
    return not state.is_done and (rerun or state.reason not in (DECIDED, *_MEMORY))
