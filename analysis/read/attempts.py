"""Tell attempts, repeated lines and lines out of order apart in rows read from top to bottom."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

SAME_MOMENT_S = 5.0
DISPLACED = 3


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempt of each of `n` rows [n], 0 if it was printed twice or done again.

    `begun` are the rows at which a later attempt begins; `twice` counts rows repeat a step.
    """

    of: Ints
    begun: tuple[int, ...]
    twice: int

    @property
    def count(self) -> int:
        """The number of attempts."""
        return len(self.begun) + 1


def attempts(step: Ints, clock: Floats) -> Attempts:
    """Return the attempts in rows of `step` [n] and of a clock [n] (NaN if there is none).

    A step seen before was printed twice (by another rank, by a bar that is redrawn) if the clock
    shows the same moment; else it is done again, and the rows from that step on are superseded.
    """
    new = np.concatenate([[True], np.diff(step) != 0])
    of = new.astype(np.int64)
    rows = np.flatnonzero(new)
    if (np.diff(step[rows]) > 0).all():
        return Attempts(of=of, begun=(), twice=int((~new).sum()))
    reader = _Reader(step=step, clock=clock, of=of)
    for row in rows.tolist():
        reader.read(row, int(step[row]))
    twice = int((~new).sum()) + reader.twice
    return Attempts(of=reader.of, begun=tuple(reader.begun), twice=twice)


@dataclass(kw_only=True)
class _Reader:
    """The current rows so far, by their step."""

    step: Ints
    clock: Floats
    of: Ints
    seen: dict[int, int] = field(default_factory=dict)
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=DISPLACED + 1))
    begun: list[int] = field(default_factory=list)
    twice: int = 0

    def read(self, row: int, step: int) -> None:
        earlier = self.seen.get(step)
        if earlier is not None and abs(self.clock[row] - self.clock[earlier]) <= SAME_MOMENT_S:
            self.twice += 1
            self.of[row] = 0
            return
        if earlier is not None or self._has_fallen_back(step):
            self._begin(row, step)
        self.of[row] = len(self.begun) + 1
        self.seen[step] = row
        self.recent.append(step)

    def _has_fallen_back(self, step: int) -> bool:
        """Whether a new, lower step is more than a line or two out of order."""
        return len(self.recent) > DISPLACED and all(step < old for old in self.recent)

    def _begin(self, row: int, step: int) -> None:
        self.begun.append(row)
        for old in [old for old in self.seen if old >= step]:
            self.of[self.seen.pop(old)] = 0
        self.recent.clear()
