"""Follow the state of runs: redraw a table on a terminal, print changes to a pipe."""

import contextlib
import io
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.status.state import RunStatus, overview
from launch.status.view import summary_lines, table_lines
from runs.study_folder import is_study_folder

# One query to Slurm's controller each time.
INTERVAL_S = 10.0


class Screen:
    """A terminal: each drawing replaces all that the window shows, cut to its height."""

    def draw(self, table: Sequence[str], lines: Sequence[str]) -> None:
        """Show the lines of the table, followed by summaries and remarks."""
        room = max(1, shutil.get_terminal_size().lines - len(lines) - 2)
        left = [f"... {len(table) - room} more lines: status --once"] if table[room:] else []
        shown = "".join(f"{line}\n" for line in (*table[:room], *left, *lines))
        print(f"\x1b[H\x1b[2J{shown}", end="", flush=True)


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


def watch(
    paths: Sequence[Path],
    *,
    on: Screen | ChangeLog,
    whole: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> list[RunStatus]:
    """Show the runs under `paths` until all have ended."""
    while True:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            runs = overview(paths)
        # A table says as much about a run, and about a folder of runs.
        named = paths if isinstance(on, ChangeLog) else [p for p in paths if is_study_folder(p)]
        lines = [*summary_lines(runs, named), *stderr.getvalue().splitlines()]
        on.draw(table_lines(runs, paths, whole=whole), lines)
        if not any(one.may_go_on for one in runs):
            return runs
        pause(INTERVAL_S)
