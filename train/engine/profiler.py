"""A window of steps under torch.profiler: a Chrome trace per rank, and a GPU memory snapshot.

`ditbench profile RUN` makes tables of the traces. The profiled steps are on a clock of
their own, so that no rate is computed from them.
"""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from configs.schema.training import Profile
from train.engine.clocks import Clocks
from train.engine.metrics import log

# Allocations that the memory snapshot holds.
_ENTRIES = 200_000


def region(name: str) -> record_function:
    """Return a context manager that names a part of a step in the trace."""
    return record_function(f"region: {name}")


class ProfileWindow:
    """Opens before step `at`, lets one step pass to warm up, and records `steps` more.

    The history of memory begins at once: an object made before the network sees its weights.
    """

    def __init__(
        self, config: Profile, folder: Path, *, rank: int, device: torch.device, clocks: Clocks
    ) -> None:
        self._config, self._folder, self._rank = config, folder, rank
        self._device, self._clocks = device, clocks
        self._profiler: profile | None = None
        self._left = 0
        self._remembers = config.at is not None and config.memory and device.type == "cuda"
        if self._remembers:
            torch.cuda.memory._record_memory_history(max_entries=_ENTRIES, stacks="python")

    def opens_before(self, step: int) -> bool:
        """Return whether to open the window before `step`; record the earlier steps first."""
        if self._remembers and self._profiler is None and step > (self._config.at or 0):
            self._forget()  # the attempt resumed behind the window
        return step == self._config.at

    def open(self) -> None:
        """Start profiling; the next step warms up."""
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._left = self._config.steps + 1
        self._profiler = profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=self._config.steps),
            acc_events=True,
        )
        self._profiler.start()
        self._clocks.divert("profile")

    def closes_after_step(self) -> bool:
        """Count a step; return whether it was the window's last. Then record, and `close`."""
        if self._profiler is None:
            return False
        self._left -= 1
        if self._left:
            self._profiler.step()
            return False
        return True

    def close(self) -> None:
        """Stop profiling, write the trace of a complete window, and release the clocks."""
        if self._profiler is None:
            return
        self._profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = self._folder / f"rank-{self._rank:05d}.json.gz"
        if not self._left:
            self._profiler.export_chrome_trace(str(trace))
        self._profiler = None
        if self._config.memory:
            self._dump_memory()
        self._clocks.divert(None)
        self._clocks.lap("profile", drain=True)
        if not self._left:
            log.info("profile of %d steps: %s", self._config.steps, trace)

    def _dump_memory(self) -> None:
        if self._device.type != "cuda":
            log.warning("profile.memory: without a GPU there is no memory snapshot")
            return
        file = self._folder / f"memory-{self._rank:05d}.pickle"
        torch.cuda.memory._dump_snapshot(str(file))
        self._forget()
        log.info("for pytorch.org/memory_viz: %s", file)

    def _forget(self) -> None:
        torch.cuda.memory._record_memory_history(enabled=None)
        self._remembers = False
