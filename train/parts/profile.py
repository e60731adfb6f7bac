"""A window of steps under torch.profiler: a Chrome trace per rank.

Beside each trace is a table of its longest operations. The profiled steps are on a clock of their
own, so that no rate is computed from them.
"""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from configs.schema.training import Profile
from train.engine.clocks import Clocks
from train.engine.metrics import log
from train.engine.part import Part
from train.parts import Pretraining

# Rows of the table of operations.
_OPERATIONS = 100


def make(training: Pretraining) -> Part | None:
    """Return the window of `profile.at`, if there is one."""
    attempt, config = training.attempt, training.attempt.config.profile
    if config.at is None:
        return None
    folder = attempt.run.profile / f"attempt-{attempt.number:03d}"
    ranks, clocks = attempt.ranks, training.context.clocks
    return ProfileWindow(config, folder, rank=ranks.rank, device=ranks.device, clocks=clocks)


class ProfileWindow(Part):
    """Opens before step `at`, lets one step pass to warm up, and records `steps` more."""

    order, clock = 10, "profile"

    def __init__(
        self, config: Profile, folder: Path, *, rank: int, device: torch.device, clocks: Clocks
    ) -> None:
        assert config.at is not None
        self._config, self._folder, self._rank = config, folder, rank
        self._device, self._clocks = device, clocks
        self._first, self._last = config.at, config.at + config.steps
        self._profiler: profile | None = None

    def interrupts(self, step: int) -> bool:
        """Return whether the window opens before `step`: its steps get a record of their own."""
        return step == self._first

    def before(self, step: int) -> None:
        """Open the window, or begin the next step in it."""
        if self._profiler is not None:
            self._profiler.step()
        elif step == self._first:
            self._open()

    def is_due(self, step: int, *, last: bool) -> bool:
        """Return whether a step is the last of the window."""
        return self._profiler is not None and step == self._last

    def after(self, step: int) -> None:
        """Close the window, which is complete."""
        self._end(complete=True)

    def close(self) -> None:
        """Close a window in which the attempt ended; it leaves no trace."""
        if self._profiler is not None:
            self._end(complete=False)

    def _open(self) -> None:
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=self._config.steps),
            acc_events=True,
        )
        self._profiler.start()
        self._clocks.divert("profile")

    def _end(self, *, complete: bool) -> None:
        """Stop profiling, write the trace of a complete window, and release the clocks."""
        assert self._profiler is not None
        self._profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = self._folder / f"rank-{self._rank:05d}.json.gz"
        if complete:
            self._profiler.export_chrome_trace(str(trace))
            trace.with_name(f"rank-{self._rank:05d}.txt").write_text(self._table(self._profiler))
            log.info("profile of %d steps: %s", self._config.steps, trace)
        self._profiler = None
        self._clocks.divert(None)
        self._clocks.lap("profile", drain=True)

    def _table(self, profiler: profile) -> str:
        """Return the longest operations by self time, and the parts of a step, as torch does."""
        by = "self_cuda_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=by, row_limit=_OPERATIONS)
        return f"{table}\n"
