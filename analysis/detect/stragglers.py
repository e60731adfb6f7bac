"""Ranks that the others wait for, from the moments at which each rank comes to a step."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.read.arrivals import RankArrivals, read_arrivals
from analysis.stats.intervals import Floats
from analysis.stats.steady_state import SIGMA_OF_MAD
from configs.run.folder import RunFolder

FEWEST_STEPS = 20
LATE_S, LATE_SIGMAS, LATE_SHARE_OF_STEP = 0.005, 4.0, 0.01
OFTEN = 0.3


@dataclass(frozen=True, kw_only=True)
class LateRank:
    """A rank of one attempt that is late at a `share` of `steps`, by `late_s` (the median).

    `step` and `line` (of its own file, `path`) are where it is late first.
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
    """The stragglers of every attempt at a run."""
    return [
        late
        for number in run.attempts()
        for late in find_late(read_arrivals(run.attempt(number) / "ranks"), attempt=number)
    ]


def find_late(told: dict[int, RankArrivals], *, attempt: int) -> list[LateRank]:
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
                    path=told[rank].path,
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
