"""Why a run should leave: signals, the STOP file, a newer attempt. Handlers only raise a flag."""

import signal
import time
from enum import IntEnum
from types import FrameType

from configs.run.folder import RunFolder


class StopRequest(IntEnum):
    """What to do at the next step boundary; ranks agree on the largest."""

    GO_ON = 0
    PAUSE = 1  # save, and be requeued: the time limit or a preemption is near
    STOP = 2  # save, and stay stopped: a person asked
    LEAVE = 3  # write nothing more: a newer attempt runs


# The event that an attempt ends with.
END_EVENTS = {StopRequest.GO_ON: "done", StopRequest.PAUSE: "paused", StopRequest.STOP: "stopped"}


class StopSignals:
    """Listens for wishes: USR1 and the file PAUSE, TERM, INT and the files STOP, a new attempt.

    The job body leaves PAUSE and STOP in the attempt, for a signal that comes before the ranks
    can hear; a person leaves STOP in the run.
    """

    def __init__(self, run: RunFolder, *, attempt: int, poll_s: float = 1.0) -> None:
        folder = run.attempt(attempt)
        self._files = (
            (run.attempt(attempt + 1), StopRequest.LEAVE),
            (run.stop_file, StopRequest.STOP),
            (folder / "STOP", StopRequest.STOP),
            (folder / "PAUSE", StopRequest.PAUSE),
        )
        self._poll_s = poll_s
        self._signalled = StopRequest.GO_ON
        self._polled_at = 0.0
        signal.signal(signal.SIGUSR1, self._handle)
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        request = StopRequest.PAUSE if number == signal.SIGUSR1 else StopRequest.STOP
        self._signalled = max(self._signalled, request)

    def request(self) -> StopRequest:
        """The strongest wish so far; files are looked for once in `poll_s` seconds."""
        now = time.monotonic()
        if now - self._polled_at >= self._poll_s:
            self._polled_at = now
            found = [request for file, request in self._files if file.exists()]
            self._signalled = max(self._signalled, *found, StopRequest.GO_ON)
        return self._signalled
