"""End runs before they are done."""

import sys
from pathlib import Path

from configs.records import RecordWriter, Superseded
from configs.run import RunFolder, is_run
from configs.yaml12 import ConfigError
from launch import cluster, submission
from launch.status import Standing, standing


def cancel(path: Path) -> None:
    """Cancel a run's job. One that runs saves first, and its own record says `stopped`."""
    if not is_run(path):
        raise ConfigError(f"{path}: not a run's folder; `python -m launch status` lists them")
    one = standing(RunFolder(path.resolve()))
    if not one.is_open:
        print(f"{path}: {one.event} already", file=sys.stderr)
    elif one.job is None or not _is_own(one.run, one.job):
        one.run.stop_file.touch()
        print(f"{path}: asked to save and stop")
    else:
        _cancel_job(one, path)


def _is_own(run: RunFolder, job: str) -> bool:
    """Whether the job is this run's alone: a session or a script may carry several."""
    return job == submission.submitted_job(run) or run.name.endswith(f"-{job}")


def _cancel_job(one: Standing, path: Path) -> None:
    assert one.job is not None
    known = cluster.jobs([one.job]).get(one.job)
    cluster.cancel(one.job)
    if known and known.state == "RUNNING":
        print(f"{path}: job {one.job} cancelled; it saves, then stops")
        return
    # Nothing runs that could write down its own end.
    _record_stop(one)
    print(f"{path}: job {one.job} cancelled; stopped")


def _record_stop(one: Standing) -> None:
    attempts = one.run.attempts()
    attempt = max(attempts, default=0) + (one.event == "queued")
    writer = RecordWriter(one.run.path, attempt=max(attempt, 1))
    try:
        writer.event("stopped", step=one.step, message="cancelled while nothing of it ran")
    except Superseded:
        # It began in this very moment, and hears the cancel itself.
        return
    finally:
        writer.close()
