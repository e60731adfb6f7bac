"""The sources of figures: files, and the commands that recompute them.

Paths are relative to the folder of the page; those in an archive go through it: `a.tar.xz/cells/x`.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

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


def recomputed(name: str, *options: str, paths: Sequence[Path], beside: Path) -> str:
    """Return the command that prints a section's rows, to be typed in the folder of the page."""
    words = ["ditbench", name, *(relative(path, beside) for path in paths), *options]
    return folded("Recompute", f"<code>{text(shlex.join(words))}</code>")


def paths_of(logs: Sequence[RunLog]) -> list[Path]:
    """Return the folders of studies whose runs these all are, otherwise the path of each run."""
    studies = dict.fromkeys(one.path for log in logs if (one := study_of(log.path)))
    runs = sum(len(find_runs(path)) for path in studies)
    return list(studies) if runs == len(logs) else [log.path for log in logs]
