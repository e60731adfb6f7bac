"""Tell the attempts in rows apart by their steps: resumes, steps printed twice, two programs."""

from bisect import insort
from collections import deque
from dataclasses import dataclass

import numpy as np

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

SAME_MOMENT_S = 5.0
DISPLACED = 3
# Falls of a step beyond these, after which so few rows reach it again, are no resumes.
MOST_RESUMES, SOON = 5, 3


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempt of each of `n` rows [n], 0 if it was done again.

    `begun` are the rows at which a later attempt begins; `twice` counts rows that repeat a step.
    """

    of: Ints
    begun: list[int]
    twice: int

    @property
    def count(self) -> int:
        """The number of attempts."""
        return len(self.begun) + 1


def attempts(step: Ints, clock: Floats) -> Attempts:
    """Return the attempts in rows of `step` [n] and of a clock [n] (NaN if there is none).

    A step seen before was printed twice (by another rank, by a bar that is redrawn) if the clock
    shows the same moment; else it is done again, and the rows from that step on are superseded.
    A new step that is lower by more than a line or two out of order begins an attempt, too.
    """
    of, begun, twice = np.ones(len(step), dtype=np.int64), list[int](), 0
    if (np.diff(step) > 0).all():
        return Attempts(of=of, begun=begun, twice=twice)
    seen, recent, before = dict[int, int](), deque[int](maxlen=DISPLACED + 1), -1
    # The steps that were seen, in order.
    rising = list[int]()
    for row, now in enumerate(step.tolist()):
        earlier, is_repeated, before = seen.get(now), now == before, now
        if earlier is not None and not is_repeated:
            is_repeated = abs(clock[row] - clock[earlier]) <= SAME_MOMENT_S
        if is_repeated and earlier is not None:
            of[row], seen[now] = len(begun) + 1, row
            twice += 1
            continue
        if earlier is not None or (len(recent) > DISPLACED and now < min(recent)):
            begun.append(row)
            while rising and rising[-1] >= now:
                of[seen.pop(rising.pop())] = 0
            recent.clear()
        of[row] = len(begun) + 1
        seen[now] = row
        insort(rising, now)
        recent.append(now)
    return Attempts(of=of, begun=begun, twice=twice)


def are_mixed(step: Ints) -> bool:
    """Whether two programs write to one file: most falls of the step are made up for at once.

    After a resume the steps rise slowly to where they were.
    """
    falls = np.flatnonzero(np.diff(step) < 0) + 1
    highest = np.maximum.accumulate(step)
    after = np.minimum(falls[:, None] + np.arange(1, SOON + 1), len(step) - 1)
    is_back = step[after].max(axis=1, initial=0) >= highest[falls - 1]
    return len(falls) > MOST_RESUMES and bool(is_back.mean() > 0.5)
