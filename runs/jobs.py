"""Know which jobs were submitted and started for a run.

The launcher keeps the text of each batch script in `jobs/ID.sbatch` of the run or of the study.
"""

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from configs.disk import replace_file
from configs.errors import ConfigError
from runs.folder import RunFolder
from runs.json_files import ArrayRows, AttemptEntry, read_json
from runs.study_folder import StudyFolder, study_of

# `launch cancel` leaves this file in the attempt that it cancels.
CANCELLED = "CANCEL"
# The variable that jobs/cells.sh exports to a turn in an interleaved study: its round, `ID:STEP`.
TURN = "DITBENCH_TURN"


def turn_end() -> int | None:
    """Return the step at which this turn of an interleaved study ends; None outside of one."""
    end = os.environ.get(TURN, "").rpartition(":")[2]
    return int(end) if end else None


def scripts_folder(run: RunFolder) -> Path:
    """Return the folder of a run's batch scripts."""
    return run.path / "jobs"


def save_script(run: RunFolder, job: str, text: str) -> None:
    """Keep the batch script of a job."""
    replace_file(scripts_folder(run) / f"{job}.sbatch", text)


def save_array(study: StudyFolder, job: str, text: str, *, first: int, rows: Sequence[int]) -> None:
    """Keep the batch script of an array and its rows; its task 0 is row `first`."""
    replace_file(study.jobs / f"{job}.sbatch", text)
    replace_file(study.jobs / f"{job}.json", json.dumps({"first": first, "rows": [*rows]}) + "\n")


def submitted_jobs(run: RunFolder) -> list[str]:
    """Return the jobs submitted for the run, as `7` or `7_3`, the last one last."""
    submitted = {
        file.stem: file.stat().st_mtime_ns for file in scripts_folder(run).glob("*.sbatch")
    }
    study = study_of(run.path)
    if study is not None and study.jobs.is_dir():
        stamps = (study.jobs.stat().st_mtime_ns, study.cells_file.stat().st_mtime_ns)
        submitted |= _tasks(study, stamps).get(run.name, {})
    return sorted(submitted, key=lambda job: submitted[job])


def awaited_job(run: RunFolder) -> str | None:
    """Return the job that may still start the run: the one submitted last."""
    return next(reversed(submitted_jobs(run)), None)


@lru_cache(maxsize=8)
def _tasks(study: StudyFolder, stamps: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Return the submission time of each task, by cell; `stamps` invalidate the cache."""
    names = [row.cell for row in study.rows()]
    tasks: dict[str, dict[str, int]] = {}
    for file in study.jobs.glob("*.json"):
        array = read_json(file, ArrayRows)
        for row in array["rows"]:
            if row >= len(names):
                raise ConfigError(f"{file}: rows: {row} is no row of {study.cells_file}")
            task = f"{file.stem}_{row - array['first']}"
            tasks.setdefault(names[row], {})[task] = file.stat().st_mtime_ns
    return tasks


def started_job(run: RunFolder) -> str | None:
    """Return the job of the newest attempt, as `7` or `7_3`."""
    attempts = run.entries()
    return job_of_attempt(attempts[-1]) if attempts else None


def job_of_attempt(entry: AttemptEntry) -> str | None:
    """Return the job in an attempt's entry of the manifest, as `7` or `7_3`."""
    slurm = entry.get("slurm", {})
    if "array_job" in slurm and "array_task" in slurm:
        return f"{slurm['array_job']}_{slurm['array_task']}"
    job = slurm.get("job")
    return None if job is None else str(job)
