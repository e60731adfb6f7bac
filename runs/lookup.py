"""Find the folder of a run or study by its path, name, start of its name, job id, or `last`."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from configs.errors import ConfigError
from configs.progress import counted
from runs.folder import RunFolder, find_runs, logs_folder
from runs.jobs import job_of_attempt, submitted_jobs
from runs.study_folder import study_of

_MOST_LISTED = 10


def look_up(name: str, *, logs: Callable[[], Path] = logs_folder) -> Path:
    """Return the folder that `name` means; a path that exists wins, the rest is looked up in LOGS.

    Return a path to a file, and the id of an unknown job, as given. Raise `ConfigError` for a name
    that fits nothing or several folders.
    """
    path = Path(name)
    if os.path.exists(path) or path.suffix in (".yaml", ".yml"):
        return path
    folder = logs()
    if os.path.exists(folder / name):
        return folder / name
    if name != path.name:
        return path
    runs = find_runs(folder) if folder.is_dir() else []
    is_job = re.fullmatch(r"\d+(_\d+)?", name) is not None
    if name == "last":
        found = _newest(runs)
    else:
        found = _of_job(runs, name) if is_job else _named(runs, name)
    if len(found) > 1:
        shown = "\n  ".join(map(str, found[-_MOST_LISTED:]))
        raise ConfigError(f"{name}: fits {len(found)} folders; name one, such as\n  {shown}")
    if not found and not is_job:
        raise ConfigError(
            f"{name}: no such file or folder, and no run or study in {folder} has that name"
        )
    return found[0] if found else path


def _newest(runs: Sequence[RunFolder]) -> list[Path]:
    """Return the newest run of this user, or the study that it is a cell of."""
    own = [run for run in runs if run.config_file.stat().st_uid == os.getuid()]
    newest = max(own, key=lambda run: run.config_file.stat().st_mtime_ns, default=None)
    return [_study_or_run(newest)] if newest else []


def _named(runs: Sequence[RunFolder], name: str) -> list[Path]:
    folders = {_study_or_run(run) for run in runs}
    exact = [path for path in folders | {run.path for run in runs} if path.name == name]
    return sorted(exact or [path for path in folders if path.name.startswith(name)])


def _of_job(runs: Sequence[RunFolder], job: str) -> list[Path]:
    """Return the runs of a job."""
    shown = f"looking for job {job}, runs"
    return [run.path for run in counted(runs, shown) if job in _jobs(run)]


def _jobs(run: RunFolder) -> set[str]:
    """Return the jobs of a run's attempts, those submitted for it, and the one in its name."""
    try:
        jobs = {*map(job_of_attempt, run.entries()), *submitted_jobs(run)}
    except (ConfigError, OSError):
        jobs = set()
    named = re.search(r"(?<!\d{4}-\d{6})-(\d+)$", run.name)
    return {job for job in (*jobs, named and named[1]) if job}


def _study_or_run(run: RunFolder) -> Path:
    study = study_of(run.path)
    return study.path if study else run.path
