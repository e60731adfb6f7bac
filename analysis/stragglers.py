"""Ranks that the others wait for, from the moments at which each rank's log tells a step."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.noise import Floats
from analysis.read.batch import Field, Format, in_order
from analysis.read.chunks import chunks
from analysis.read.log import Ints
from analysis.read.rows import rows
from analysis.steady import SIGMA_OF_MAD
from configs.run import RunFolder

FEWEST_STEPS = 20
LATE_S, LATE_SIGMAS, LATE_SHARE_OF_STEP = 0.005, 4.0, 0.01
OFTEN = 0.3
_RANK = re.compile(r"rank-(\d{1,9})\.log")
_ARRIVAL = Format(
    name="arrival",
    token=b" INFO step ",
    pattern=re.compile(rb" INFO step +(?P<step>\d{1,18})/"),
    fields={"step": Field(group="step")},
)


@dataclass(frozen=True, kw_only=True)
class LateRank:
    """A rank of one attempt that is late at a `share` of `steps`, by `late_s` (the median).

    `step` and `line` (of its own log) are where it is late first.
    """

    attempt: int
    rank: int
    step: int
    line: int
    share: float
    late_s: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """When one rank told each step [n], in seconds, and on which line of its log [n]."""

    step: Ints
    time: Floats
    line: Ints


def late_ranks(run: RunFolder) -> list[LateRank]:
    """The stragglers of every attempt at a run."""
    return [
        late
        for number in run.attempts()
        for late in find_late(read_arrivals(run.attempt(number) / "ranks"), attempt=number)
    ]


def read_arrivals(folder: Path) -> dict[int, Arrivals]:
    """The arrivals of every rank whose log can be read."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = _RANK.fullmatch(path.name)
        if not name or not path.is_file():
            continue
        try:
            parts = [rows(chunk, [_ARRIVAL]).get("arrival") for chunk in chunks(path)]
        except (OSError, EOFError):
            continue
        told = [part for part in parts if part is not None and "time" in part.values]
        if told:
            every = in_order(told, is_redrawn=False)
            # Of a step told twice the first counts: what comes after it is another reason.
            step, first = np.unique(every.step, return_index=True)
            found[int(name[1])] = Arrivals(
                step=step, time=every.values["time"][first], line=every.line[first]
            )
    return found


def find_late(told: dict[int, Arrivals], *, attempt: int) -> list[LateRank]:
    """Ranks that come after the others at many steps, by more than the noise and the clock show.

    Of two ranks the late one is compared with the other, of more with the median rank.
    """
    if len(told) < 2:
        return []
    ranks = sorted(told)
    steps = told[ranks[0]].step
    for rank in ranks[1:]:
        steps = np.intersect1d(steps, told[rank].step, assume_unique=True)
    if len(steps) < FEWEST_STEPS:
        return []
    places = {rank: np.searchsorted(told[rank].step, steps) for rank in ranks}
    time = np.array([told[rank].time[places[rank]] for rank in ranks])
    steps, time = steps[known := ~np.isnan(time).any(axis=0)], time[:, known]
    if len(steps) < FEWEST_STEPS:
        return []
    late = time - (time[::-1] if len(ranks) == 2 else np.median(time, axis=0))
    is_late = late > _bound(late, time)
    found = []
    for row, rank in enumerate(ranks):
        if is_late[row].mean() >= OFTEN:
            first = int(np.flatnonzero(is_late[row])[0])
            found.append(
                LateRank(
                    attempt=attempt,
                    rank=rank,
                    step=int(steps[first]),
                    line=int(told[rank].line[places[rank][known][first]]),
                    share=float(is_late[row].mean()),
                    late_s=float(np.median(late[row][is_late[row]])),
                    steps=len(steps),
                )
            )
    return found


def _bound(late: Floats, time: NDArray[np.float64]) -> float:
    """What counts as late, in seconds, by the scatter of the typical rank and the time of a step.

    The logs tell milliseconds, and writing a record takes some: less than `LATE_S` is nothing.
    """
    middle = np.median(late, axis=1, keepdims=True)
    sigma = SIGMA_OF_MAD * float(np.median(np.median(np.abs(late - middle), axis=1)))
    between = float(np.median(np.diff(np.median(time, axis=0))))
    return max(LATE_S, LATE_SIGMAS * sigma, LATE_SHARE_OF_STEP * between)
