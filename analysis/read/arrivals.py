"""When each rank of an attempt came to each step.

`attempts/NNN/ranks/arrivals-RRRRR.jsonl` holds lines `{"step": int, "time": seconds since 1970}`,
the time taken before the step's collective. Without such files of two ranks their logs are read,
which tell a step after its last collective.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.formats.trainer import as_numbers
from analysis.read.run_log import Ints
from analysis.read.text.batch import Field, Format, in_order
from analysis.read.text.chunks import chunks
from analysis.read.text.rows import rows
from analysis.stats.intervals import Floats


@dataclass(frozen=True, kw_only=True)
class RankArrivals:
    """When one rank told each step [n], in seconds, and on which line of its file [n]."""

    path: Path
    step: Ints
    time: Floats
    line: Ints


def _arrived(text: bytes) -> list[tuple[int, dict[str, float]]]:
    """The step and the time of one line of an arrivals file."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return []
    told = as_numbers(record) if isinstance(record, dict) else {}
    if "step" not in told or "time" not in told:
        return []
    return [(0, {"step": told["step"], "time": told["time"]})]


_ARRIVALS = (
    re.compile(r"arrivals-(\d{1,9})\.jsonl"),
    Format(name="arrival", token=b'"step"', read=_arrived, has_stamps=False),
)
_LOGS = (
    re.compile(r"rank-(\d{1,9})\.log"),
    Format(
        name="arrival",
        token=b" INFO step ",
        pattern=re.compile(rb" INFO step +(?P<step>\d{1,18})/"),
        fields={"step": Field(group="step")},
    ),
)


def read_arrivals(folder: Path) -> dict[int, RankArrivals]:
    """The arrivals of every rank whose file can be read: arrivals files before logs."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found: dict[int, RankArrivals] = {}
    for name, known in (_ARRIVALS, _LOGS):
        named = [(match, path) for path in paths if (match := name.fullmatch(path.name))]
        read = ((int(match[1]), _arrivals(path, known)) for match, path in named)
        found = {rank: told for rank, told in read if told is not None}
        if len(found) > 1:
            break
    return found


def _arrivals(path: Path, known: Format) -> RankArrivals | None:
    """What one rank's file tells; None where it tells nothing."""
    if not path.is_file():
        return None
    try:
        parts = [rows(chunk, [known]).get(known.name) for chunk in chunks(path)]
    except (OSError, EOFError):
        return None
    told = [part for part in parts if part is not None and "time" in part.values]
    if not told:
        return None
    every = in_order(told, is_redrawn=False)
    # Of a step told twice the first counts: what comes after it is another reason.
    step, first = np.unique(every.step, return_index=True)
    return RankArrivals(
        path=path, step=step, time=every.values["time"][first], line=every.line[first]
    )
