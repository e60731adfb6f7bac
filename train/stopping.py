"""Why a run should leave: signals, the STOP file, a newer attempt. Handlers only raise a flag."""

import signal
import time
from enum import IntEnum
from pathlib import Path
from types import FrameType


class Wish(IntEnum):
    """What to do at the next step boundary; ranks agree on the largest."""

    GO_ON = 0
    PAUSE = 1  # save, and be requeued: the time limit or a preemption is near
    STOP = 2  # save, and stay stopped: a person asked
    LEAVE = 3  # write nothing more: a newer attempt runs


class Watch:
    """Listens for wishes. USR1 asks for a pause; TERM, INT and the file STOP for a stop."""

    def __init__(self, *, stop_file: Path, next_attempt: Path, poll_s: float = 1.0) -> None:
        self._stop_file, self._next_attempt, self._poll_s = stop_file, next_attempt, poll_s
        self._signalled = Wish.GO_ON
        self._polled_at = 0.0
        signal.signal(signal.SIGUSR1, self._handle)
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        wish = Wish.PAUSE if number == signal.SIGUSR1 else Wish.STOP
        self._signalled = max(self._signalled, wish)

    def wish(self) -> Wish:
        """The strongest wish so far; files are looked for once in `poll_s` seconds."""
        now = time.monotonic()
        if now - self._polled_at >= self._poll_s:
            self._polled_at = now
            if self._next_attempt.exists():
                self._signalled = Wish.LEAVE
            elif self._stop_file.exists():
                self._signalled = max(self._signalled, Wish.STOP)
        return self._signalled
