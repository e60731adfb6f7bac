"""Follow what a run says: its job's own output until it begins, then its newest attempt's."""

import glob
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder
from configs.run.study_folder import study_of
from launch.slurm import client
from launch.slurm.client import Refused
from launch.status import submitted_jobs
from launch.status.holds import Holds
from launch.status.state import OPEN, Standing, standing

POLL_S = 0.5
# How long a run may say nothing until Slurm is asked whether its job still lives.
SILENCE_S = 60.0


class Tail:
    """One growing file: the last lines of it, then what is added."""

    def __init__(self, path: Path, *, lines: int) -> None:
        self.path = path
        self._offset = _offset_of_last(path, lines=lines)

    def more(self) -> bytes:
        """What was added since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        return added


def _offset_of_last(path: Path, *, lines: int) -> int:
    """Where the last lines begin, looked for in the last megabyte."""
    size = path.stat().st_size
    start = max(0, size - 2**20)
    with path.open("rb") as file:
        file.seek(start)
        end = file.read()
    kept = end.splitlines(keepends=True)[-lines:] if lines else []
    return start + len(end) - sum(map(len, kept))


def follow(run: RunFolder, *, lines: int, pause: Callable[[float], None] = time.sleep) -> Standing:
    """Print what the run says until it has ended; how it then stands."""
    tail: Tail | None = None
    heard_at, holds = -math.inf, Holds()
    while True:
        # Read before the output, so that the last words of a run that ended are printed.
        one = standing(run)
        path = _speaking(run, one)
        if path is not None and (tail is None or tail.path != path):
            print(f"==> {path} <==", file=sys.stderr)
            tail = Tail(path, lines=lines if tail is None else sys.maxsize)
        added = tail.more() if tail else b""
        if added:
            heard_at = time.monotonic()
            sys.stdout.buffer.write(added)
            sys.stdout.flush()
        if one.event not in (*OPEN, ""):
            return one
        if time.monotonic() - heard_at > SILENCE_S:
            heard_at = time.monotonic()
            _check_alive(one, holds)
        pause(POLL_S)


def _speaking(run: RunFolder, one: Standing) -> Path | None:
    """The file that the run writes to now, if there is one yet."""
    newest = max(run.attempts(), default=0)
    output = run.attempt(newest) / "output.log"
    waits_for = one.last.get("attempt", 0) if one.event == "queued" else 0
    if newest >= max(waits_for, 1) and output.exists():
        return output
    return job_output(run, one.job)


def job_output(run: RunFolder, job: str | None) -> Path | None:
    """What Slurm, or submitit's local executor, wrote of the job itself."""
    if job is None:
        found = list(submitted_jobs.folder(run).glob("*_log.out"))
    else:
        study = study_of(run.path)
        logs = study.path.parent if study else run.path.parent
        found = list(logs.glob(f"*-{glob.escape(job)}.out"))
    return max(found, key=lambda file: file.stat().st_mtime_ns, default=None)


def _check_alive(one: Standing, holds: Holds) -> None:
    if one.job is None:
        return
    try:
        known = client.jobs([one.job]).get(one.job)
    except ConfigError:
        # No Slurm here: the folder is all there is to go by.
        return
    if known is not None and not known.has_ended:
        if known.state == "PENDING":
            print(f"job {one.job} waits: {known.reason}", file=sys.stderr)
            print(*holds.shorten([one], {one.job: known}), sep="\n", end="", file=sys.stderr)
        return
    # It may have ended well since it was looked at.
    if standing(one.run).is_open:
        said = known.state if known else "no longer known to Slurm"
        raise Refused(f"{one.run.path}: {one.event}, but its job {one.job} is {said}")


def check_run(run: RunFolder) -> None:
    """Refuse a folder that is no run's."""
    if not run.config_file.is_file():
        raise ConfigError(f"{run.path}: not a run's folder; `python -m launch status` lists them")
