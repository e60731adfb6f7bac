"""What ai-toolkit was doing when, from what its status table said, on cumulative clocks."""

import re
from dataclasses import dataclass

from finetune.aitoolkit.job_db import Change

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
    """The phase that a status text stands for; the many texts of loading have no pattern."""
    for pattern, phase in _PHASES:
        if pattern.match(info):
            return phase
    return "load"


@dataclass(frozen=True, kw_only=True)
class SamplingTime:
    """Samples that were all drawn: how many, when, and in which time; the first one's apart."""

    time: float
    step: int
    images: int
    seconds: float
    first_s: float


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What the clocks show, over all attempts, at one time."""

    time: float
    step: int
    seconds: dict[str, float]

    def fields(self) -> dict[str, float]:
        """The clocks as fields of a record, `train_s` and so on."""
        return {f"{name}_s": round(seconds, 6) for name, seconds in self.seconds.items()}


class Timeline:
    """Books the time between changes of the table to phases; `before` is what the clocks show."""

    def __init__(self, *, began: float, before: dict[str, float]) -> None:
        self._seconds = {name: before.get(name, 0.0) for name in CLOCKS}
        self._before = self._seconds["train"]
        self._mark, self.phase = began, "setup"
        self.info = "Starting"
        self.step = 0
        self._images: list[float] = []
        self.drawn: list[SamplingTime] = []

    def take(self, change: Change) -> Moment:
        """The clocks at a change, which ends what went on until then."""
        spent = max(0.0, change.time - self._mark)
        self._seconds[self.phase] += spent
        self._mark = max(self._mark, change.time)
        self._count_images(change)
        # An end, well or badly, is no phase of its own.
        if change.status == "running":
            self.phase, self.info = phase_of(change.info), change.info
        self.step = max(self.step, change.step)
        return Moment(time=change.time, step=change.step, seconds=dict(self._seconds))

    @property
    def trained_s(self) -> float:
        """Seconds of training steps in this attempt."""
        return self._seconds["train"] - self._before

    def now(self) -> Moment:
        """The clocks at the last change."""
        return Moment(time=self._mark, step=self.step, seconds=dict(self._seconds))

    def _count_images(self, change: Change) -> None:
        match = _IMAGES.match(change.info)
        if match is None:
            self._images = []
            return
        number, total = int(match[1]), int(match[2])
        if number == 0:
            self._images = [change.time]
        elif len(self._images) == number:
            self._images.append(change.time)
            if number == total:
                begin, first, last = self._images[0], self._images[1], self._images[-1]
                self.drawn.append(
                    SamplingTime(
                        time=last,
                        step=change.step,
                        images=total,
                        seconds=last - begin,
                        first_s=first - begin,
                    )
                )
