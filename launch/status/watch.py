"""Follow the state of runs: redraw a table on a terminal, print changes to a pipe.

Following also shortens the wait of requeued jobs. Slurm holds a requeued job until the credential
of its last start has expired, two minutes by default. The job's owner may change its begin time,
unless the site forbids it.
"""

import contextlib
import io
import os
import select
import shutil
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from launch.slurm import client
from launch.status.state import RunStatus, overview
from launch.status.view import summary_lines, table_lines
from runs.state.slurm_job import SlurmJob
from runs.study_folder import is_study_folder

# One query to Slurm's controller each time.
INTERVAL_S = 10.0
# Not at once: Slurm kills a start in the second in which a node revokes the last credential.
BEGIN_DELAY_S = 5


class RequeueHolds:
    """Shorten the hold of requeued jobs, once per job."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def shorten(self, runs: Iterable[RunStatus]) -> list[str]:
        """Let the held jobs of runs begin soon; return a remark per job."""
        remarks = []
        for one in runs:
            job = one.state.slurm
            if job is None or one.job is None or one.job in self._tried or not _is_held(one, job):
                continue
            self._tried.add(one.job)
            if client.begin_in(one.job, BEGIN_DELAY_S):
                remark = f"job {one.job} was held after its requeue: it begins in {BEGIN_DELAY_S} s"
            else:
                remark = (
                    f"job {one.job} is held after its requeue, and the site forbids to end that"
                )
            remarks.append(remark)
        return remarks


def _is_held(one: RunStatus, job: SlurmJob) -> bool:
    """Return whether Slurm set the begin time: the job has run before."""
    has_run = one.state.is_started or one.state.is_paused
    return has_run and job.is_waiting and job.reason == "BeginTime"


class Screen:
    """A terminal: each drawing replaces the last, cut to the height of the window."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, table: Sequence[str], lines: Sequence[str]) -> None:
        """Show the lines of the table, followed by summaries and remarks."""
        size = shutil.get_terminal_size()
        below = [part for line in lines for part in textwrap.wrap(line, size.columns)]
        room = max(1, size.lines - len(below) - 2)
        above = list(table)
        if len(above) > room:
            above[room:] = [f"... {len(above) - room} more lines: status --once"]
        drawn = [*above, *below]
        up = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        sys.stdout.write(up + "".join(f"{line}\n" for line in drawn))
        sys.stdout.flush()
        self._height = len(drawn)


class ChangeLog:
    """A pipe or a file: each line is printed once, with the time."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def draw(self, table: Sequence[str], lines: Sequence[str]) -> None:
        """Print the summaries and remarks that are new."""
        new = [line for line in lines if line not in self._printed]
        self._printed.update(new)
        for line in new:
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def wait_for_key(seconds: float) -> None:
    """Wait; any key of the terminal ends the wait, and q raises KeyboardInterrupt."""
    if not sys.stdin.isatty() or os.tcgetpgrp(0) != os.getpgrp():
        time.sleep(seconds)
        return
    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0, termios.TCSADRAIN)
        if select.select([0], [], [], seconds)[0] and os.read(0, 1) in (b"q", b"Q"):
            raise KeyboardInterrupt
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def watch(
    paths: Sequence[Path],
    *,
    on: Screen | ChangeLog,
    whole: bool = False,
    pause: Callable[[float], None] = wait_for_key,
) -> list[RunStatus]:
    """Show the runs under `paths` until all have ended; shorten the hold of requeued jobs."""
    holds = RequeueHolds()
    remarks: list[str] = []
    while True:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            runs = overview(paths)
        remarks += holds.shorten(runs)
        # A table says as much about a run, and about a folder of runs.
        named = paths if isinstance(on, ChangeLog) else [p for p in paths if is_study_folder(p)]
        lines = [*summary_lines(runs, named), *stderr.getvalue().splitlines(), *remarks]
        on.draw(table_lines(runs, paths, whole=whole), lines)
        if not any(one.may_go_on for one in runs):
            return runs
        pause(INTERVAL_S)
