"""Skip the waiting cells of a study that would only repeat what its ended cells have shown.

A study whose cells fail alike stops: the cause lies in what they share, such as the code. A crash
of one cell, a NaN, a lost node or a lack of memory says nothing about another cell. The repeats
that can change no verdict are skipped by `analysis decide`.
"""

import re
from collections.abc import Iterator

from runs.folder import RunFolder
from runs.records import Record, Superseded, state
from runs.study_folder import StudyFolder, study_of

# The reason of a repeat that is skipped because it can change no verdict (`analysis decide`).
DECIDED = "decided"
# The other reasons can follow from the config of a single cell, or from its node.
_SHARED = frozenset(("config", "crash", "data", "disk", "hang", "nccl"))


def waiting(study: StudyFolder) -> Iterator[RunFolder]:
    """Yield the cells that have not begun."""
    for row in study.rows():
        run = RunFolder(study.cell(row.cell))
        if not run.attempts():
            last = state(run.records())
            if last is not None and last["event"] == "queued":
                yield run


def skip(run: RunFolder, *, proof: RunFolder, reason: str, message: str) -> bool:
    """Record that a cell is skipped for the end of the cell `proof`, unless it has begun."""
    try:
        run.record_event(1, "skipped", reason=reason, proof=proof.name, message=message)
    except Superseded:
        return False
    return True


def skip_after_alike(run: RunFolder, last: Record) -> str | None:
    """Skip the waiting cells of a study if the newest `stop_after` ends are failures like `last`.

    Return a sentence that says so, or None. A cell that ends in another way restarts the count;
    `rerun` queues the cells again, whose last event then is no failure.
    """
    study = study_of(run.path)
    most = study.stop_after() if study else None
    if study is None or most is None or last.get("reason") not in _SHARED:
        return None
    newest = _ends(study)[-most:]
    if len(newest) < most or len({_signature(one, end) for one, end in newest}) > 1:
        return None
    first, end = newest[0]
    message = (
        f"the last {most} cells failed alike, first {first.name} ({end['reason']}): "
        f"{end.get('message', '')}; fix that, then: ditbench rerun {study.path}"
    )
    reason = str(end["reason"])
    skipped = [
        one for one in waiting(study) if skip(one, proof=first, reason=reason, message=message)
    ]
    return f"{len(skipped)} waiting cells are skipped: {message}" if skipped else None


def _ends(study: StudyFolder) -> list[tuple[RunFolder, Record]]:
    """Return the cells that are done or failed with their last events, oldest first."""
    runs = [RunFolder(study.cell(row.cell)) for row in study.rows()]
    ends = [(run, last) for run in runs if (last := state(run.records()))]
    ended = [one for one in ends if one[1]["event"] in ("done", "failed")]
    return sorted(ended, key=lambda one: float(one[1]["time"]))


def _signature(run: RunFolder, end: Record) -> tuple[str, str]:
    """Return what equal failures have in common: numbers and the cell's name may differ."""
    message = str(end.get("message", "")).replace(run.name, "CELL")
    return str(end.get("reason", end["event"])), re.sub(r"\d+", "N", message)
