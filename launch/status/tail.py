"""Follow the output of a run: of its job until it starts, then of its newest attempt."""

import glob
import math
import sys
import time
from pathlib import Path

from configs.files import open_regular
from launch.slurm.client import Refused
from launch.status.state import RunStatus, overview, run_status
from runs.folder import RunFolder
from runs.jobs import scripts_folder
from runs.state.run_state import RunState
from runs.study_folder import study_of

POLL_S = 0.5
# After this time without output Slurm is asked whether the job still exists.
SILENCE_S = 60.0


class Tail:
    """The last lines of a growing file, then what is appended."""

    def __init__(self, path: Path, *, lines: int) -> None:
        self.path = path
        self._offset = _offset_of_last(path, lines=lines)

    def more(self) -> bytes:
        """Return what was appended since the last call."""
        with open_regular(self.path) as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        return added


def _offset_of_last(path: Path, *, lines: int) -> int:
    """Return the offset of the last lines, searched in the last megabyte."""
    with open_regular(path) as file:
        start = file.seek(max(0, file.seek(0, 2) - 2**20))
        end = file.read()
    kept = end.splitlines(keepends=True)[-lines:] if lines else []
    return start + len(end) - sum(map(len, kept))


def follow(run: RunFolder, *, lines: int) -> RunState:
    """Print the output of a run until it has ended; return its final status."""
    tail: Tail | None = None
    last_output = -math.inf
    while True:
        # Read the status before the output, so that the last lines of an ended run are printed.
        one = run_status(run)
        path = _current_output(run, one)
        if path is not None and (tail is None or tail.path != path):
            print(f"==> {path} <==", file=sys.stderr)
            tail = Tail(path, lines=lines if tail is None else sys.maxsize)
        added = tail.more() if tail else b""
        if added:
            last_output = time.monotonic()
            sys.stdout.buffer.write(added)
            sys.stdout.flush()
        if not one.state.is_open:
            return one.state
        if time.monotonic() - last_output > SILENCE_S:
            last_output = time.monotonic()
            _check_job(run)
        time.sleep(POLL_S)


def _current_output(run: RunFolder, one: RunStatus) -> Path | None:
    """Return the file that the run writes to now, if it exists yet."""
    newest = max(run.attempts(), default=0)
    output = run.attempt(newest) / "output.log"
    waits_for = one.state.attempt if one.state.is_queued else 0
    if newest >= max(waits_for, 1) and output.exists():
        return output
    return job_output(run, one.job)


def job_output(run: RunFolder, job: str | None) -> Path | None:
    """Return the output file of the job, or of the newest process of `--local`."""
    if job is None:
        found = list(scripts_folder(run).glob("[0-9]*.out"))
    else:
        study = study_of(run.path)
        folders = [study.jobs, study.path.parent] if study else [run.path.parent]
        found = [file for one in folders for file in one.glob(f"*-{glob.escape(job)}.out")]
    return max(found, key=lambda file: file.stat().st_mtime_ns, default=None)


def _check_job(run: RunFolder) -> None:
    """Raise `Refused` if the job of an unfinished run has ended."""
    (one,) = overview([run.path])
    state, slurm = one.state, one.state.slurm
    if slurm is not None and slurm.is_waiting:
        print(f"job {one.job} waits: {slurm.reason}", file=sys.stderr)
    # The run may have ended since its status was read.
    if state.is_open and state.next == "resume":
        word = slurm.state if slurm and slurm.state else "no longer known to Slurm"
        raise Refused(f"{run.path}: {state.recorded}, but its job {one.job} is {word}")
