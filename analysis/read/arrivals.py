"""When each rank of an attempt reached each step.

`attempts/NNN/ranks/arrivals-RRRRR.jsonl` holds lines `{"step": int, "time": seconds since 1970}`,
the time taken before the step's collective.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats
from configs.run.records import is_number


@dataclass(frozen=True, kw_only=True)
class RankArrivals:
    """When one rank reached each step [n], in seconds, and on which line of its file [n]."""

    path: Path
    step: Ints
    time: Floats
    line: Ints


def read_arrivals(folder: Path) -> dict[int, RankArrivals]:
    """Return the arrivals of every rank whose file can be read."""
    found = {}
    for path in sorted(folder.glob("arrivals-*.jsonl")):
        rank = re.fullmatch(r"arrivals-(\d{1,9})\.jsonl", path.name)
        if rank and (rows := list(_rows(path))):
            # The first line of a step counts: a later one is a resume's.
            step, first = np.unique([step for step, _, _ in rows], return_index=True)
            time, line = (np.array([row[column] for row in rows])[first] for column in (1, 2))
            arrivals = RankArrivals(path=path, step=step, time=time.astype(float), line=line)
            found[int(rank[1])] = arrivals
    return found


def _rows(path: Path) -> Iterator[tuple[int, float, int]]:
    """Yield the step, the time and the line of each whole record."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            try:
                record = json.loads(line)
                step, time = record["step"], record["time"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if type(step) is int and 0 <= step < 1 << 53 and is_number(time):
                yield step, time, number
