"""`status` on a terminal: the table drawn anew until nothing of it is open."""

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launch.holds import Holds
from launch.status import Overview, overview, table
from launch.table import text

# One question to Slurm's controller each time.
EVERY_S = 10.0


def watch(
    paths: Sequence[Path],
    *,
    summaries: Callable[[Overview], Sequence[str]],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Draw how the runs below `paths` stand until all have ended, and begin held ones sooner."""
    holds, height = Holds(), 0
    remarks: list[str] = []
    while True:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            now = overview(paths)
        remarks += holds.shorten(now.standings, now.jobs or {})
        lines = [text(table(now.rows)), *summaries(now), *said.getvalue().splitlines(), *remarks]
        height = _draw("\n".join(lines), over=height)
        if not now.open:
            return
        pause(EVERY_S)


def _draw(shown: str, *, over: int) -> int:
    """Put text in place of the last `over` lines; as much of it as the terminal holds."""
    size = shutil.get_terminal_size()
    lines = [line[: size.columns] for line in shown.splitlines()]
    if len(lines) >= size.lines:
        hidden = len(lines) - size.lines + 2
        lines = [*lines[: size.lines - 2], f"... {hidden} more lines: status --once"]
    up = f"\x1b[{over}A\x1b[J" if over else ""
    sys.stdout.write(up + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)
