"""The files that the numbers of a page were read from, by their paths from its folder."""

import os
from pathlib import Path

from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named


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
