"""Skip the waiting cells of a study that would only repeat what its ended cells have shown.

A study whose cells fail alike stops: the cause lies in what they share, such as the code. A crash
of one cell, a NaN, a lost node or a lack of memory says nothing about another cell. The repeats
that can change no verdict are skipped by `cells --decided`.
"""

import re
from collections.abc import Iterator

from runs.folder import RunFolder
from runs.records import Superseded
from runs.state.fold import run_state
from runs.state.reasons import reasons
from runs.state.run_state import RunState
from runs.study_folder import StudyFolder, study_of

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


def skip(run: RunFolder, *, proof: RunFolder, reason: str, message: str) -> bool:
    """Record that a cell is skipped for the end of the cell `proof`, unless it has begun."""
    try:
        run.record_event(1, "skipped", reason=reason, proof=proof.name, message=message)
    except Superseded:
        return False
    return True


def is_wanted(run: RunFolder, state: RunState, *, rerun: bool, dropped: bool) -> bool:
    """Return whether a cell without a job is to be submitted.

    A run that ran out of memory would do so again, and a repeat that can change no verdict stays
    skipped; `rerun` includes both. `dropped` includes the cells that the forecast skipped.
    """
    if state.is_done:
        return False
    if state.is_skipped:
        is_forecast = "proof" not in state.last
        return dropped if is_forecast else rerun or state.reason not in (DECIDED, *_MEMORY)
    return rerun or not (state.is_failed and _is_out_of_memory(run, state))


def _is_out_of_memory(run: RunFolder, state: RunState) -> bool:
    """Return whether a run failed since its devices have too little memory.

    For ranks without a GPU that is host memory. With a GPU, running out of host memory has other
    causes.
    """
    entries = run.entries()
    placement = entries[-1].get("placement", []) if entries else []
    had_gpu = not placement or any(rank.get("gpu") for rank in placement)
    return state.reason == "oom" or (state.reason == "host_oom" and not had_gpu)


def skip_after_alike(run: RunFolder, state: RunState) -> str | None:
    """Skip the waiting cells of a study if the newest `stop_after` ends are failures like `state`.

    Return a sentence that says so, or None. A cell that ends in another way restarts the count;
    `rerun` queues the cells again, whose last event then is no failure.
    """
    study = study_of(run.path)
    most = study.stop_after() if study else None
    if study is None or most is None or not _is_shared(state):
        return None
    newest = _ends(study)[-most:]
    if len(newest) < most or len({_signature(one, end) for one, end in newest}) > 1:
        return None
    first, end = newest[0]
    message = (
        f"the last {most} cells failed alike, first {first.name} ({end.reason}): "
        f"{end.message}; fix that, then: ditbench rerun {study.path}"
    )
    reason = str(end.reason)
    skipped = [
        one for one in waiting(study) if skip(one, proof=first, reason=reason, message=message)
    ]
    return f"{len(skipped)} waiting cells are skipped: {message}" if skipped else None


def _is_shared(state: RunState) -> bool:
    """Return whether a failure can lie in what cells share, not in one config or node."""
    return state.is_failed and reasons()[state.reason or "crash"].shared


def _ends(study: StudyFolder) -> list[tuple[RunFolder, RunState]]:
    """Return the cells that are done or failed with their states, oldest first."""
    runs = [RunFolder(study.cell(row.cell)) for row in study.rows()]
    ends = [(run, run_state(run)) for run in runs]
    ended = [end for end in ends if end[1].is_done or end[1].is_failed]
    return sorted(ended, key=lambda end: end[1].since or 0.0)


def _signature(run: RunFolder, end: RunState) -> tuple[str, str]:
    """Return what equal failures have in common: numbers and the cell's name may differ."""
    message = end.message.replace(run.name, "CELL")
    return end.reason or end.name, re.sub(r"\d+", "N", message)
