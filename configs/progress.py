"""A word on stderr if work takes long."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

_FIRST_S, _AGAIN_S = 2.0, 10.0
_Item = TypeVar("_Item")


class LongWork:
    """Says how far `work` is: after two seconds, then on a terminal every ten."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._due = time.monotonic() + _FIRST_S

    @property
    def is_due(self) -> bool:
        """Whether it is time to say something."""
        return time.monotonic() >= self._due

    def say(self, done: str) -> None:
        """Say what is done so far."""
        print(f"{self._work}: {done} so far", file=sys.stderr)
        self._due = time.monotonic() + _AGAIN_S if sys.stderr.isatty() else float("inf")


def counted(items: Iterable[_Item], work: str) -> Iterator[_Item]:
    """Yield items, and say how many there were if it takes long."""
    progress = LongWork(work)
    for count, item in enumerate(items, start=1):
        yield item
        if progress.is_due:
            progress.say(f"{count:,}")
