"""What the launcher leaves in a run, or in a study: the text of each job submitted, by its id."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from configs.disk import replace_file
from configs.run.folder import RunFolder
from configs.run.study_folder import StudyFolder, study_of


def folder(run: RunFolder) -> Path:
    """Where the texts are."""
    return run.path / "jobs"


def keep_text(run: RunFolder, job: str, text: str) -> None:
    """Keep the batch script of a job."""
    folder(run).mkdir(exist_ok=True)
    replace_file(folder(run) / f"{job}.sbatch", text)


def keep_array(study: StudyFolder, job: str, text: str, *, first: int, rows: Sequence[int]) -> None:
    """Keep the batch script of an array, whose task 0 is row `first`, and its rows."""
    replace_file(study.jobs / f"{job}.sbatch", text)
    replace_file(study.jobs / f"{job}.json", json.dumps({"first": first, "rows": [*rows]}) + "\n")


def submitted_job(run: RunFolder) -> str | None:
    """The job submitted last, as `7` or `7_3`; it may not have begun."""
    texts = {file.stem: file.stat().st_mtime_ns for file in folder(run).glob("*.sbatch")}
    study = study_of(run.path)
    if study is not None and study.jobs.is_dir():
        stamps = (study.jobs.stat().st_mtime_ns, study.cells_file.stat().st_mtime_ns)
        texts |= _tasks(study, stamps).get(run.name, {})
    return max(texts, key=lambda job: texts[job], default=None)


@lru_cache(maxsize=8)
def _tasks(study: StudyFolder, stamps: tuple[int, int]) -> dict[str, dict[str, int]]:
    """By cell, the tasks submitted for it and when; `stamps` tell when to look again."""
    names = [row.cell for row in study.rows()]
    tasks: dict[str, dict[str, int]] = {}
    for file in study.jobs.glob("*.json"):
        array = json.loads(file.read_text(encoding="utf-8"))
        for row in array["rows"]:
            task = f"{file.stem}_{row - array['first']}"
            tasks.setdefault(names[row], {})[task] = file.stat().st_mtime_ns
    return tasks


def begun_job(run: RunFolder) -> str | None:
    """The job of the newest attempt, as the attempt itself noted it: `7`, or `7_3` of an array."""
    attempts = run.manifest().get("attempts", [])
    slurm = (attempts[-1].get("slurm") or {}) if attempts else {}
    if "array_job" in slurm and "array_task" in slurm:
        return f"{slurm['array_job']}_{slurm['array_task']}"
    job = slurm.get("job")
    return None if job is None else str(job)
