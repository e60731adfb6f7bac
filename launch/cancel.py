"""Cancel runs, or all runs of a study."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.errors import ConfigError
from launch.slurm import client
from launch.status.state import RunStatus, run_status
from launch.submit.request import own_study
from launch.submit.study_cells import run_statuses
from runs.folder import RunFolder, is_run
from runs.jobs import CANCELLED, WHILE_WAITING, submitted_jobs
from runs.records import Superseded
from runs.study_folder import is_study_folder
from runs.trust import check_own


def cancel(path: Path) -> None:
    """Cancel a run or all runs of a study; a running one saves and records `stopped` itself.

    The job of a study's report stays queued.
    """
    study = own_study(path) if is_study_folder(path) else None
    if study:
        runs = list(run_statuses(study, study.rows()).values())
    elif is_run(path):
        check_own(path)
        runs = [run_status(RunFolder(path.resolve()))]
    else:
        raise ConfigError(f"{path}: not a run's folder; `ditbench status` lists them")
    runs = [one for one in runs if one.state.is_open]
    if not runs:
        print(f"{path}: already ended", file=sys.stderr)
        return
    if study:
        # jobs/cells.sh, which runs cells without Slurm, looks for this file before each cell.
        study.stop_file.touch()
    for one in runs:
        if one.state.is_started and (attempts := one.run.attempts()):
            # `launch why` looks for this mark.
            (one.run.attempt(attempts[-1]) / CANCELLED).touch()
    in_jobs = [one for one in runs if one.job is not None and _has_own_job(one)]
    others = [one for one in runs if one not in in_jobs]
    for one in others:
        one.run.stop_file.touch()
        if one.state.is_waiting:
            _record_stop(one)
    running = len(_cancel_jobs(in_jobs)) + sum(one.state.is_started for one in others)
    waiting = len(runs) - running
    print(
        f"{path}: {running} running, which save and stop; "
        f"{waiting} waiting or starting, now stopped"
    )


def _has_own_job(one: RunStatus) -> bool:
    """Return whether the job belongs to this run alone: a session or script may hold several."""
    return one.job in submitted_jobs(one.run) or one.run.name.endswith(f"-{one.job}")


def _cancel_jobs(runs: Sequence[RunStatus]) -> list[RunStatus]:
    """Cancel the jobs of runs; return those that train, which record their own end."""
    jobs = [one.job for one in runs if one.job]
    if not jobs:
        return []
    known = client.query_jobs(jobs)
    client.cancel(*jobs)
    running = []
    for one in runs:
        job = known.get(one.job or "")
        if job is not None and job.state == "RUNNING" and not one.state.is_queued:
            running.append(one)
        else:
            # No process is left, or none that could record the end before it is killed.
            _record_stop(one)
    return running


def _record_stop(one: RunStatus) -> None:
    attempt = max(one.run.attempts(), default=0)
    if one.state.is_queued:
        attempt = one.state.attempt
    # A new attempt that has just started receives the cancel itself.
    with contextlib.suppress(Superseded):
        one.run.record_event(max(attempt, 1), "stopped", step=one.state.step, message=WHILE_WAITING)
