"""Stop a study whose cells fail alike: the cause lies in what they share, such as the code."""

import re

from configs.attempt.pruning import skip, waiting
from configs.run.folder import RunFolder
from configs.run.records import Record, state
from configs.run.study_folder import StudyFolder, study_of

# The other reasons can follow from the config of a single cell, or from its node.
_SHARED = frozenset(("config", "crash", "data", "disk", "hang", "nccl"))


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
