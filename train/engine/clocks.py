"""Wall time of a run in seconds by purpose, kept across attempts; names of parts in traces."""

import time
from dataclasses import dataclass

import torch
from torch.profiler import record_function


class Clocks:
    """Books all time since construction to one purpose each; `data` also counts as `train`."""

    PURPOSES = ("setup", "train", "data", "save", "sample", "eval", "profile")

    def __init__(self, device: torch.device, *, purposes: tuple[str, ...] = PURPOSES) -> None:
        self._device = device
        self._mark = time.perf_counter()
        self._diverted: str | None = None
        self.seconds = dict.fromkeys(purposes, 0.0)

    def lap(self, purpose: str, *, drain: bool = False) -> None:
        """Book the time since the last lap; with `drain`, wait for the device first."""
        if drain and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        purpose = self._diverted or purpose
        self.seconds[purpose] += now - self._mark
        if purpose == "data":
            self.seconds["train"] += now - self._mark
        self._mark = now

    def divert(self, purpose: str | None) -> None:
        """Book all following laps to `purpose`, until this is called with None."""
        self._diverted = purpose

    @property
    def running(self) -> str:
        """The field of `fields` that time is booked to between the laps of a step."""
        return f"{self._diverted or 'train'}_s"

    def fields(self) -> dict[str, float]:
        """Return the clocks at the last lap as fields of a record: `train_s` and so on."""
        return {f"{name}_s": round(seconds, 6) for name, seconds in self.seconds.items()}


@dataclass(frozen=True, kw_only=True)
class QueuePoint:
    """A point in the work of a device, queued by the host at a time; on a GPU, an event."""

    queued: float
    event: torch.cuda.Event | None


class DeviceClock:
    """Tells when the device reached a point of its work, on the host's `time.perf_counter`.

    A host runs ahead of its GPU. The time of an event is the time of the point before it plus the
    seconds that the GPU counts between the two; it lies after the event was queued and before it
    was found complete, which bounds the drift of the two clocks. A CPU reaches a point when it is
    queued.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._before: torch.cuda.Event | None = None
        self._time = 0.0

    def point(self) -> QueuePoint:
        """Return the point after all work that is queued now."""
        event = torch.cuda.Event(enable_timing=True, blocking=True) if self._on_gpu else None
        queued = time.perf_counter()
        if event:
            event.record()
        return QueuePoint(queued=queued, event=event)

    def reached(self, point: QueuePoint) -> float:
        """Wait until the device reaches `point`; return that time. Ask for points in order."""
        if point.event is None:
            return point.queued
        point.event.synchronize()
        found = time.perf_counter()
        if self._before:
            passed = self._time + self._before.elapsed_time(point.event) / 1000
            found = min(max(passed, point.queued), found)
        self._before, self._time = point.event, found
        return found


def region(name: str) -> record_function:
    """Return a context manager that names a part of a step in the traces of torch.profiler."""
    return record_function(f"region: {name}")
