"""A word on stderr if reading takes long."""

import sys
import time
from pathlib import Path

_FIRST_S, _AGAIN_S = 2.0, 10.0


class ReadingProgress:
    """Says how much of a file is read: after two seconds, then on a terminal every ten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(path.stat().st_size, 1)
        self._due = time.monotonic() + _FIRST_S

    def at(self, place: int) -> None:
        """Note that the first `place` bytes of the file are read."""
        if time.monotonic() < self._due:
            return
        share = min(place / self._size, 1.0)
        print(f"reading {str(self._path)!r}: {share:.0%} so far", file=sys.stderr)
        self._due = time.monotonic() + _AGAIN_S if sys.stderr.isatty() else float("inf")
