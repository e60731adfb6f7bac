"""End runs, or all runs of a study, before they are done."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder, is_run
from configs.run.records import Superseded
from configs.run.study_folder import StudyFolder, is_study_folder
from launch.slurm import client
from launch.status import submitted_jobs
from launch.status.state import Standing, standing
from launch.submit.study_cells import standings


def cancel(path: Path) -> None:
    """Cancel the jobs of a run, or of a study. What runs saves first, and says `stopped` itself."""
    if is_study_folder(path):
        _cancel_study(StudyFolder(path.resolve()))
        return
    if not is_run(path):
        raise ConfigError(f"{path}: not a run's folder; `python -m launch status` lists them")
    one = standing(RunFolder(path.resolve()))
    if not one.is_open:
        print(f"{path}: {one.event} already", file=sys.stderr)
    elif one.job is None or not _is_own(one.run, one.job):
        one.run.stop_file.touch()
        print(f"{path}: asked to save and stop")
    elif _cancel_jobs([one]):
        print(f"{path}: job {one.job} cancelled; it saves, then stops")
    else:
        print(f"{path}: job {one.job} cancelled; stopped")


def _cancel_study(study: StudyFolder) -> None:
    """End all of a study with one `scancel`; the report on what there is stays queued."""
    told = [one for one in standings(study, study.rows()).values() if one.is_open]
    if not told:
        print(f"{study.path}: all of it has ended already", file=sys.stderr)
        return
    # What runs here without Slurm looks for it before each cell.
    study.stop_file.touch()
    in_jobs = [one for one in told if one.job is not None and _is_own(one.run, one.job)]
    others = [one for one in told if one not in in_jobs]
    for one in others:
        one.run.stop_file.touch()
        if one.event == "queued":
            _record_stop(one)
    running = len(_cancel_jobs(in_jobs)) + sum(one.event != "queued" for one in others)
    print(
        f"{study.path}: {running} that run save and stop, {len(told) - running} that waited are "
        "stopped"
    )


def _is_own(run: RunFolder, job: str) -> bool:
    """Whether the job is this run's alone: a session or a script may carry several."""
    return job == submitted_jobs.submitted_job(run) or run.name.endswith(f"-{job}")


def _cancel_jobs(told: Sequence[Standing]) -> list[Standing]:
    """Cancel jobs of runs; those that run, and will write down their own end."""
    jobs = [one.job for one in told if one.job is not None]
    if not jobs:
        return []
    known = client.jobs(jobs)
    client.cancel(*jobs)
    running = []
    for one in told:
        job = known.get(one.job or "")
        if job is not None and job.state == "RUNNING":
            running.append(one)
        else:
            # Nothing runs that could write down its own end.
            _record_stop(one)
    return running


def _record_stop(one: Standing) -> None:
    attempts = one.run.attempts()
    attempt = max(attempts, default=0) + (one.event == "queued")
    # If it began in this very moment, it receives the cancel itself.
    with contextlib.suppress(Superseded):
        one.run.record_event(
            max(attempt, 1), "stopped", step=one.step, message="cancelled while nothing of it ran"
        )
