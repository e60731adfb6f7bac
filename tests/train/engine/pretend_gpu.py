"""A GPU and its host in virtual time: the host queues work, and waits only if it asks for it."""

import time

import pytest
import torch


class PretendGpu:
    """`now` is the host's clock; the device has done all queued work at `free_at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.free_at = 1000.0
        self.drains = 0
        gpu = self

        class Event:
            """An event that completes when the work queued before it has."""

            def __init__(self, *, enable_timing: bool = False, blocking: bool = False) -> None:
                assert blocking, "a host that waits must leave its core to the data loader"
                self._times = enable_timing
                self.at = 0.0

            def record(self) -> None:
                self.at = max(gpu.now, gpu.free_at)

            def query(self) -> bool:
                return self.at <= gpu.now

            def synchronize(self) -> None:
                gpu.now = max(gpu.now, self.at)

            def elapsed_time(self, end: "Event") -> float:
                assert self._times
                assert end.at <= gpu.now, "an event that has not completed has no time"
                return 1000 * (end.at - self.at)

        def synchronize(_: object) -> None:
            gpu.now = max(gpu.now, gpu.free_at)
            gpu.drains += 1

        monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
        monkeypatch.setattr(time, "time", lambda: gpu.now + 1.7e9)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 2_000_000_000)

    def launch(self, *, host_s: float, device_s: float) -> None:
        """Queue work of `device_s` seconds; to launch it takes the host `host_s`."""
        self.now += host_s
        self.free_at = max(self.free_at, self.now) + device_s
