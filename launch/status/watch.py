"""`status` that stays: a table drawn anew on a terminal, lines as things change in a pipe."""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from launch.status.holds import Holds
from launch.status.state import Overview, overview, table
from launch.table import text

# One question to Slurm's controller each time.
EVERY_S = 10.0


class Surface(Protocol):
    """What is drawn on."""

    def draw(self, shown: str, changes: Sequence[str]) -> None:
        """Show the whole, of which `changes` are the lines that tell how it goes on."""


class Screen:
    """A terminal: each drawing takes the place of the last, as much of it as there is room for."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, shown: str, changes: Sequence[str]) -> None:
        """Draw the whole."""
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in [*shown.splitlines(), *changes]]
        if len(lines) >= size.lines:
            hidden = len(lines) - size.lines + 2
            lines = [*lines[: size.lines - 2], f"... {hidden} more lines: status --once"]
        up = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        sys.stdout.write(up + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._height = len(lines)


class ChangeLog:
    """A pipe or a file: what changed, as it changes."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def draw(self, shown: str, changes: Sequence[str]) -> None:
        """Print the lines that were not said before."""
        fresh = [line for line in changes if line not in self._said]
        self._said.update(fresh)
        for line in fresh:
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def watch(
    paths: Sequence[Path],
    *,
    on: Surface,
    summaries: Callable[[Overview], Sequence[str]],
    pause: Callable[[float], None] = time.sleep,
) -> Overview:
    """Draw how the runs below `paths` stand until all have ended, and begin held ones sooner."""
    holds = Holds()
    remarks: list[str] = []
    while True:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            now = overview(paths)
        remarks += holds.shorten(now.standings, now.jobs or {})
        lines = [*summaries(now), *said.getvalue().splitlines(), *remarks]
        on.draw(text(table(now.rows)) if now.rows else "", lines)
        if not now.open:
            return now
        pause(EVERY_S)
