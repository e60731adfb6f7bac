"""Know which jobs were submitted and started for a run.

The launcher keeps the text of each batch script in `jobs/ID.sbatch` of the run.
"""

import os
from pathlib import Path

from configs.disk import replace_file
from runs.folder import RunFolder
from runs.json_files import AttemptEntry

# `launch cancel` leaves this file in the attempt that it cancels.
CANCELLED = "CANCEL"
# The message of a run that it cancels before an attempt.
WHILE_WAITING = "cancelled while it waited"
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


def submitted_jobs(run: RunFolder) -> list[str]:
    """Return the jobs submitted for the run, the last one last."""
    scripts = scripts_folder(run).glob("*.sbatch")
    return [file.stem for file in sorted(scripts, key=lambda file: file.stat().st_mtime_ns)]


def awaited_job(run: RunFolder) -> str | None:
    """Return the job that may still start the run: the one submitted last."""
    return next(reversed(submitted_jobs(run)), None)


def started_job(run: RunFolder) -> str | None:
    """Return the job of the newest attempt."""
    attempts = run.entries()
    return job_of_attempt(attempts[-1]) if attempts else None


def job_of_attempt(entry: AttemptEntry) -> str | None:
    """Return the job in an attempt's entry of the manifest."""
    job = entry.get("slurm", {}).get("job")
    return None if job is None else str(job)
