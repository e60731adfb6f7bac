"""Follow the state of runs: redraw a table on a terminal, print changes to a pipe.

Following also shortens the wait of requeued jobs. Slurm holds a requeued job until the credential
of its last start has expired, two minutes by default. The job's owner may change its begin time,
unless the site forbids it.
"""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from launch.slurm import client
from launch.slurm.client import Job
from launch.status.state import Overview, RunStatus, overview, table
from launch.table import text

# One query to Slurm's controller each time.
INTERVAL_S = 10.0
# Not at once: Slurm kills a start in the second in which a node revokes the last credential.
BEGIN_DELAY_S = 5


class RequeueHolds:
    """Shorten the hold of requeued jobs, once per job."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def shorten(self, runs: Iterable[RunStatus], jobs: Mapping[str, Job]) -> list[str]:
        """Let the held jobs of runs begin soon; return a remark per job."""
        remarks = []
        for one in runs:
            job = jobs.get(one.job or "")
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


def _is_held(one: RunStatus, job: Job) -> bool:
    """Return whether Slurm set the begin time: the job has run before."""
    has_run = one.event in ("started", "paused")
    return has_run and (job.state, job.reason) == ("PENDING", "BeginTime")


class Display(Protocol):
    """Shows the state of runs."""

    def draw(self, shown: str, lines: Sequence[str]) -> None:
        """Show the table, followed by lines of summaries and remarks."""


class Screen:
    """A terminal: each drawing replaces the last, cut to the size of the window."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, shown: str, lines: Sequence[str]) -> None:
        """Redraw everything."""
        size = shutil.get_terminal_size()
        cut = [line[: size.columns] for line in [*shown.splitlines(), *lines]]
        if len(cut) >= size.lines:
            hidden = len(cut) - size.lines + 2
            cut = [*cut[: size.lines - 2], f"... {hidden} more lines: status --once"]
        up = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        sys.stdout.write(up + "".join(f"{line}\n" for line in cut))
        sys.stdout.flush()
        self._height = len(cut)


class ChangeLog:
    """A pipe or a file: each line is printed once, with the time."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def draw(self, shown: str, lines: Sequence[str]) -> None:
        """Print the new lines."""
        new = [line for line in lines if line not in self._printed]
        self._printed.update(new)
        for line in new:
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def watch(
    paths: Sequence[Path],
    *,
    on: Display,
    summaries: Callable[[Overview], Sequence[str]],
    pause: Callable[[float], None] = time.sleep,
) -> Overview:
    """Show the runs under `paths` until all have ended; shorten the hold of requeued jobs."""
    holds = RequeueHolds()
    remarks: list[str] = []
    while True:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            now = overview(paths)
        remarks += holds.shorten(now.runs, now.jobs or {})
        lines = [*summaries(now), *stderr.getvalue().splitlines(), *remarks]
        on.draw(text(table(now.rows)) if now.rows else "", lines)
        if not now.is_unfinished:
            return now
        pause(INTERVAL_S)
