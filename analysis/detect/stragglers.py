"""Find ranks that the others wait for, from the times at which each rank arrives at a step."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats
from analysis.stats.summary import SIGMA_OF_MAD
from configs.files import read_lines
from runs.folder import RunFolder
from runs.records import is_number

MIN_STEPS = 20
LATE_S, LATE_SIGMAS, LATE_SHARE_OF_STEP = 0.005, 4.0, 0.01
MIN_LATE_SHARE = 0.3


@dataclass(frozen=True, kw_only=True)
class RankArrivals:
    """When one rank reached each step [n], in seconds, and on which line of its file [n]."""

    path: Path
    step: Ints
    time: Floats
    line: Ints


def read_arrivals(folder: Path) -> dict[int, RankArrivals]:
    """Return the arrivals of every rank whose `arrivals-RRRRR.jsonl` can be read.

    A line is {"step": int, "time": seconds since 1970}, before the step's collective.
    """
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
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
            step, time = record["step"], record["time"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if type(step) is int and 0 <= step < 1 << 53 and is_number(time):
            yield step, time, number


@dataclass(frozen=True, kw_only=True)
class LateRank:
    """A rank of one attempt that is late at a `share` of `steps`, by `late_s` (the median).

    `step` and `line` are those of its first late arrival; `path` is the rank's own file.
    """

    path: Path
    attempt: int
    rank: int
    step: int
    line: int
    share: float
    late_s: float
    steps: int


def late_ranks(run: RunFolder) -> list[LateRank]:
    """Return the stragglers of every attempt of a run."""
    return [
        late
        for number in run.attempts()
        for late in find_late(read_arrivals(run.attempt(number) / "ranks"), attempt=number)
    ]


def find_late(arrivals: dict[int, RankArrivals], *, attempt: int) -> list[LateRank]:
    """Return ranks that arrive late at many steps, by more than noise and clock resolution.

    Two ranks are compared with each other, more than two with the median rank.
    """
    if len(arrivals) < 2:
        return []
    ranks = sorted(arrivals)
    steps = arrivals[ranks[0]].step
    for rank in ranks[1:]:
        steps = np.intersect1d(steps, arrivals[rank].step, assume_unique=True)
    if len(steps) < MIN_STEPS:
        return []
    rows = {rank: np.searchsorted(arrivals[rank].step, steps) for rank in ranks}
    time = np.array([arrivals[rank].time[rows[rank]] for rank in ranks])
    steps, time = steps[known := ~np.isnan(time).any(axis=0)], time[:, known]
    if len(steps) < MIN_STEPS:
        return []
    late = time - (time[::-1] if len(ranks) == 2 else np.median(time, axis=0))
    is_late = late > _late_bound(late, time)
    found = []
    for row, rank in enumerate(ranks):
        if is_late[row].mean() >= MIN_LATE_SHARE:
            first = int(np.flatnonzero(is_late[row])[0])
            found.append(
                LateRank(
                    path=arrivals[rank].path,
                    attempt=attempt,
                    rank=rank,
                    step=int(steps[first]),
                    line=int(arrivals[rank].line[rows[rank][known][first]]),
                    share=float(is_late[row].mean()),
                    late_s=float(np.median(late[row][is_late[row]])),
                    steps=len(steps),
                )
            )
    return found


def _late_bound(late: Floats, time: Floats) -> float:
    """Return the lateness in seconds that counts: beyond the scatter and a share of the step time.

    Logs have a resolution of 1 ms and writing a record takes time, so less than `LATE_S` is noise.
    """
    median = np.median(late, axis=1, keepdims=True)
    sigma = SIGMA_OF_MAD * float(np.median(np.median(np.abs(late - median), axis=1)))
    step_s = float(np.median(np.diff(np.median(time, axis=0))))
    return max(LATE_S, LATE_SIGMAS * sigma, LATE_SHARE_OF_STEP * step_s)
