"""What the launcher leaves in a run: the text of each job submitted for it, under the job's id."""

from pathlib import Path

from configs.disk import replace_file
from configs.run import RunFolder


def folder(run: RunFolder) -> Path:
    """Where the texts are."""
    return run.path / "jobs"


def keep_text(run: RunFolder, job: str, text: str) -> None:
    """Keep the batch script of a job."""
    folder(run).mkdir(exist_ok=True)
    replace_file(folder(run) / f"{job}.sbatch", text)


def submitted_job(run: RunFolder) -> str | None:
    """The job submitted last; it may not have begun."""
    texts = sorted(folder(run).glob("*.sbatch"), key=lambda file: file.stat().st_mtime_ns)
    return texts[-1].stem if texts else None


def begun_job(run: RunFolder) -> str | None:
    """The job of the newest attempt, as the attempt itself noted it."""
    attempts = run.manifest().get("attempts", [])
    slurm = (attempts[-1].get("slurm") or {}) if attempts else {}
    job = slurm.get("job")
    return None if job is None else str(job)
