"""The evidence of figures: files with their lines, and the commands that recompute them.

Paths are relative to the folder of the page; those in an archive go through it: `a.tar.xz/cells/x`.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report.html import folded, text
from runs.folder import find_runs
from runs.study_folder import study_of


def source(log: RunLog) -> Path:
    """Return the file that the numbers of a run were read from."""
    return log.source or (log.path / "metrics.jsonl" if log.format == "ditbench" else log.path)


def file_of(path: Path) -> Path:
    """Return a file, or the archive that it was unpacked from."""
    named = Path(as_named(str(path)))
    return next((one for one in (named, *named.parents) if one.is_file()), named)


def relative(path: Path, beside: Path) -> str:
    """Return a path from the folder of a page."""
    return os.path.relpath(Path(as_named(str(path))).resolve(), beside.resolve())


def address(path: Path, beside: Path, *, line: int) -> str:
    """Return the link to a line of a file, or to the archive that holds it."""
    link = quote(relative(file_of(path), beside), errors="surrogateescape")
    return f"{link}#line={line}" if file_of(path) == path else link


def command(name: str, *options: str, paths: Sequence[Path], beside: Path) -> str:
    """Return the command that recomputes a figure, to be typed in the folder of the page."""
    return shlex.join(["ditbench", name, *(relative(path, beside) for path in paths), *options])


def evidence(logs: Sequence[RunLog], commands: Sequence[str], beside: Path) -> str:
    """Return the lines of runs and the commands that recompute a verdict, to be opened."""
    parts = [f"<code>{text(one)}</code>" for one in commands]
    for log in (log for log in logs if len(log)):
        first, file = int(log.line.min()), source(log)
        link = f'<a href="{text(address(file, beside, line=first))}">'
        parts.append(f"{link}{text(relative(file, beside))}</a>, lines {first} to {log.line.max()}")
    return folded("Evidence", "<br>".join(parts))


def recomputed(name: str, *options: str, logs: Sequence[RunLog], beside: Path) -> str:
    """Return the lines of runs and the command that recomputes a section on all of them."""
    studies = dict.fromkeys(one.path for log in logs if (one := study_of(log.path)))
    runs = sum(len(find_runs(path)) for path in studies)
    paths = list(studies) if runs == len(logs) else [log.path for log in logs]
    return evidence(logs, [command(name, *options, paths=paths, beside=beside)], beside)
