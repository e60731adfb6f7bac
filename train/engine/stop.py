"""Requests to stop: signals, the files STOP and PAUSE, a newer attempt."""

import signal
import time
from enum import IntEnum
from types import FrameType

from runs.folder import RunFolder
from train.engine.metrics import log


class StopRequest(IntEnum):
    """The action at the next step boundary; ranks agree on the largest."""

    GO_ON = 0
    PAUSE = 1  # save, to be requeued: the time limit or a preemption is near
    STOP = 2  # save, and stay stopped: a person asked for it
    LEAVE = 3  # write nothing more: a newer attempt runs


# The event that an attempt ends with.
END_EVENTS = {StopRequest.GO_ON: "done", StopRequest.PAUSE: "paused", StopRequest.STOP: "stopped"}


class StopSignals:
    """Collects the stop requests of an attempt; signal handlers only set a flag.

    USR1 and the file PAUSE pause, TERM, INT and the files STOP stop, and a newer attempt makes
    this one leave. The job body writes PAUSE and STOP into the attempt if a signal comes before
    the ranks can receive it; a person writes STOP into the run.
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
        self._strongest = StopRequest.GO_ON
        self._announced = StopRequest.GO_ON
        self._polled_at = 0.0
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        request = StopRequest.PAUSE if number == signal.SIGUSR1 else StopRequest.STOP
        self._strongest = max(self._strongest, request)

    def request(self) -> StopRequest:
        """Return the strongest request so far; files are checked at most every `poll_s` seconds."""
        now = time.monotonic()
        if now - self._polled_at >= self._poll_s:
            self._polled_at = now
            found = [request for file, request in self._files if file.exists()]
            self._strongest = max(self._strongest, *found, StopRequest.GO_ON)
        if self._strongest > self._announced:
            self._announced = self._strongest
            log.info("asked to %s: finishing the step first", self._announced.name.lower())
        return self._strongest
