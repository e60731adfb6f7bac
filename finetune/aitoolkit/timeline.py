"""Cumulative clocks by phase, and sampling times, from the updates of ai-toolkit's job table."""

import re
from dataclasses import dataclass

from finetune.aitoolkit.job_db import JobUpdate

CLOCKS = ("setup", "load", "quantise", "cache", "train", "save", "sample")
_IMAGES = re.compile(r"Generating images - (\d+)/(\d+)")
_PHASES = (
    (re.compile(r"Quantiz"), "quantise"),
    (re.compile(r"Loading dataset"), "cache"),
    (re.compile(r"Training"), "train"),
    (re.compile(r"Saving"), "save"),
    (_IMAGES, "sample"),
    (re.compile(r"Starting$"), "setup"),
)


def phase_of(info: str) -> str:
    """Return the phase of a status text; any text without a pattern belongs to `load`."""
    for pattern, phase in _PHASES:
        if pattern.match(info):
            return phase
    return "load"


@dataclass(frozen=True, kw_only=True)
class SamplingTime:
    """The time of a complete set of samples, and of its first image."""

    step: int
    images: int
    seconds: float
    first_s: float


@dataclass(frozen=True, kw_only=True)
class ClockReading:
    """The clocks, cumulative over all attempts, at one step."""

    step: int
    seconds: dict[str, float]

    def fields(self) -> dict[str, float]:
        """Return the clocks as fields of a record, `train_s` and so on."""
        return {f"{name}_s": round(seconds, 6) for name, seconds in self.seconds.items()}


class Timeline:
    """Adds the time between updates to the phase's clock; `before` are the clocks at the start."""

    def __init__(self, *, began: float, before: dict[str, float]) -> None:
        self._seconds = {name: before.get(name, 0.0) for name in CLOCKS}
        self._before = self._seconds["train"]
        self._mark, self.phase = began, "setup"
        self.info = "Starting"
        self.step = 0
        self._images: list[float] = []
        self._sampled: list[SamplingTime] = []

    def add(self, update: JobUpdate) -> ClockReading:
        """Add an update, which ends the phase before it, and return the clocks at it."""
        spent = max(0.0, update.time - self._mark)
        self._seconds[self.phase] += spent
        self._mark = max(self._mark, update.time)
        self._count_images(update)
        # The end of a job, with or without an error, is no phase.
        if update.status == "running":
            self.phase, self.info = phase_of(update.info), update.info
        self.step = max(self.step, update.step)
        return ClockReading(step=update.step, seconds=dict(self._seconds))

    @property
    def trained_s(self) -> float:
        """Seconds of training steps in this attempt."""
        return self._seconds["train"] - self._before

    def now(self) -> ClockReading:
        """Return the clocks at the last update."""
        return ClockReading(step=self.step, seconds=dict(self._seconds))

    def new_samples(self) -> list[SamplingTime]:
        """Return the sets of samples completed since the last call."""
        sampled, self._sampled = self._sampled, []
        return sampled

    def _count_images(self, update: JobUpdate) -> None:
        match = _IMAGES.match(update.info)
        if match is None:
            self._images = []
            return
        number, total = int(match[1]), int(match[2])
        if number == 0:
            self._images = [update.time]
        elif len(self._images) == number:
            self._images.append(update.time)
            if number == total:
                begin, first, last = self._images[0], self._images[1], self._images[-1]
                self._sampled.append(
                    SamplingTime(
                        step=update.step, images=total, seconds=last - begin, first_s=first - begin
                    )
                )
