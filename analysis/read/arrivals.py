"""When each rank of an attempt reached each step.

`attempts/NNN/ranks/arrivals-RRRRR.jsonl` holds lines `{"step": int, "time": seconds since 1970}`,
the time taken before the step's collective. Without such files of two ranks their logs are read,
which print a step after its last collective.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.run_log import Ints
from analysis.read.text.patterns import Format
from analysis.read.text.scan import scanned
from analysis.stats.intervals import Floats

_FILES = (
    (
        re.compile(r"arrivals-(\d{1,9})\.jsonl"),
        Format(
            name="arrival",
            tokens=(b'"step"',),
            pattern=re.compile(rb"\{(?P<pairs>[^\n{}]*\"step\"[^\n{}]*)\}"),
            pair=re.compile(rb"\"(step|time)\": *(-?[\d.]+)"),
            has_head=False,
        ),
    ),
    (
        re.compile(r"rank-(\d{1,9})\.log"),
        Format(
            name="arrival",
            tokens=(b" INFO step ",),
            pattern=re.compile(rb" INFO step +(?P<step>\d{1,18})/"),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class RankArrivals:
    """When one rank reached each step [n], in seconds, and on which line of its file [n]."""

    path: Path
    step: Ints
    time: Floats
    line: Ints


def read_arrivals(folder: Path) -> dict[int, RankArrivals]:
    """Return the arrivals of every rank whose file can be read: arrivals files before logs."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found: dict[int, RankArrivals] = {}
    for name, known in _FILES:
        named = [(match, path) for path in paths if (match := name.fullmatch(path.name))]
        read = ((int(match[1]), _arrivals(path, known)) for match, path in named)
        found = {rank: arrivals for rank, arrivals in read if arrivals is not None}
        if len(found) > 1:
            break
    return found


def _arrivals(path: Path, known: Format) -> RankArrivals | None:
    """Return the arrivals in one rank's file; None if it has none."""
    if not path.is_file():
        return None
    try:
        rows = scanned(path, [known])[0].get(known.name)
    except (OSError, EOFError):
        return None
    if rows is None or "time" not in rows or "step" not in rows:
        return None
    rows = rows.take(~np.isnan(rows["step"] + rows["time"]))
    if not len(rows):
        return None
    # The first line of a step counts: a later one is a resume's.
    step, first = np.unique(rows["step"].astype(np.int64), return_index=True)
    line = rows["line"][first].astype(np.int64)
    return RankArrivals(path=path, step=step, time=rows["time"][first], line=line)
