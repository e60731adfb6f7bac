"""Studies that are submitted, their jobs, and ends of their cells."""

import re
from pathlib import Path

from runs.folder import RunFolder
from runs.study_folder import StudyFolder


def submitted(launch, *words: str | Path) -> StudyFolder:
    code, out, err = launch("submit", *words)
    assert code == 0, err
    return StudyFolder(Path(out.splitlines()[0].removeprefix("study: ")))


def end(study: StudyFolder, cell: str, event: str, **fields: object) -> RunFolder:
    """Write the records of a cell whose run ended with this event."""
    run = RunFolder(study.cell(cell))
    number = max(run.attempts(), default=0) + 1
    run.attempt(number).mkdir()
    run.record_event(number, "started", step=0)
    run.record_event(number, event, **fields)
    return run


def end_all(study: StudyFolder, event: str = "done", *, but: tuple[str, ...] = ()) -> None:
    for row in study.rows():
        if row.cell not in but:
            end(study, row.cell, event, step=10)


def lines(tmp_path: Path) -> list[tuple[str, str]]:
    """Return the line of every submitted job, in order, and what it waits for; "" for none."""
    scripts = sorted(tmp_path.glob("*.sbatch"), key=lambda file: int(file.stem))
    found = []
    for text in (file.read_text() for file in scripts):
        name = re.search(r"^#SBATCH --job-name=.*-[0-9a-f]{4}-?(\d*)$", text, re.M)
        awaited = re.search(r"^#SBATCH --dependency=(.*)$", text, re.M)
        found.append((name[1] if name else "", awaited[1] if awaited else ""))
    return found
