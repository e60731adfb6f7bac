"""Know which jobs were submitted and started for a run.

The launcher keeps the text of each batch script in `jobs/ID.sbatch` of the run or of the study. Of
the jobs of one `submit --first`, which export `SUBMISSION`, the first that starts has the run.
"""

import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.files import read_text
from runs.folder import RunFolder
from runs.json_files import ArrayRows, AttemptEntry, read_json
from runs.study_folder import StudyFolder, study_of

# `launch cancel` leaves this file in the attempt that it cancels.
CANCELLED = "CANCEL"
# The variables that the jobs of `submit --first` export: their submission, and their shape.
SUBMISSION, ALTERNATIVE = "DITBENCH_FIRST", "DITBENCH_ALTERNATIVE"
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


def awaited_jobs(run: RunFolder) -> list[str]:
    """Return the jobs that may still start the run: the last one, or several of `--first`."""
    jobs = submitted_jobs(run)
    if not (jobs and (submission := _submission(run, jobs[-1]))):
        return jobs[-1:]
    winner = claimant(run, submission)
    return [winner] if winner else [job for job in jobs if _submission(run, job) == submission]


def _submission(run: RunFolder, job: str) -> str | None:
    """Return the submission in the batch script of a job; None if the job is its only one."""
    try:
        text = read_text(scripts_folder(run) / f"{job}.sbatch", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^export {SUBMISSION}=(\S+)$", text, re.MULTILINE)
    return found[1] if found else None


def claim_file(run: RunFolder, submission: str) -> Path:
    """Return the file with the id of the job that has the run; it exists from the first start."""
    return scripts_folder(run) / f"{submission}.claim"


def claimant(run: RunFolder, submission: str) -> str | None:
    """Return the job that has claimed the run, None before the first of the submission starts."""
    file = claim_file(run, submission)
    try:
        job = read_text(file, errors="replace").strip()
    except FileNotFoundError:
        return None
    if not job.isdigit():
        raise ConfigError(f"{file}: not the id of a job; cancel the jobs of the run, submit again")
    return job


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
