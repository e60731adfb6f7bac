"""Step records from two sources: clocks from the job table, losses from ai-toolkit's loss log."""

import re
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune.aitoolkit.job_db import JobUpdate

CLOCKS = ("setup", "load", "quantise", "cache", "train", "save", "sample")
_PHASES = (
    (re.compile(r"Quantiz"), "quantise"),
    (re.compile(r"Loading dataset"), "cache"),
    (re.compile(r"Training"), "train"),
    (re.compile(r"Saving"), "save"),
    (re.compile(r"Generating images"), "sample"),
    (re.compile(r"Starting$"), "setup"),
)
_LOSS, _RATE, _HELD_OUT = "loss/loss", "learning_rate", "val/loss"


def phase_of(info: str) -> str:
    """Return the phase of a status text; any text without a pattern belongs to `load`."""
    for pattern, phase in _PHASES:
        if pattern.match(info):
            return phase
    return "load"


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

    def add(self, update: JobUpdate) -> ClockReading:
        """Add an update, which ends the phase before it, and return the clocks at it."""
        spent = max(0.0, update.time - self._mark)
        self._seconds[self.phase] += spent
        self._mark = max(self._mark, update.time)
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


@dataclass(frozen=True, kw_only=True)
class LoggedStep:
    """One optimizer step, counted from 1; `loss` is None if the step ran out of memory.

    `held_out` is the mean loss on the images held out, if it was evaluated after the step.
    """

    step: int
    loss: float | None
    lr: float | None
    held_out: float | None


class LossLog:
    """Reads `loss_log.db` as it is written: steps from 0, without the first of an attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest = -1

    def new_steps(self) -> list[LoggedStep]:
        """Return the steps logged since the last call, in order."""
        if not self._path.is_file():
            return []
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as database:
                rows = database.execute(
                    "SELECT steps.step, metrics.key, metrics.value_real FROM steps "
                    "LEFT JOIN metrics ON metrics.step = steps.step "
                    "WHERE steps.step > ? ORDER BY steps.step",
                    (self._newest,),
                ).fetchall()
        except sqlite3.OperationalError:
            # The tables appear a moment after the file, and a writer may hold the lock.
            return []
        found: dict[int, dict[str, float]] = {}
        for step, name, value in rows:
            found.setdefault(int(step), {})[str(name)] = value
        self._newest = max(found, default=self._newest)
        return [
            LoggedStep(
                step=step + 1,
                loss=values.get(_LOSS),
                lr=values.get(_RATE),
                held_out=values.get(_HELD_OUT),
            )
            for step, values in sorted(found.items())
        ]


class StepRecords:
    """Combines every `every` steps into a record, once the loss of the last one is known."""

    def __init__(self, *, every: int, last: int, images_per_step: int) -> None:
        self._every, self._last, self._images = every, last, images_per_step
        self._waiting: deque[ClockReading] = deque()
        self._logged: dict[int, LoggedStep] = {}
        self._newest = 0
        self._losses: list[float] = []
        self._skipped = 0

    def end_step(self, reading: ClockReading) -> None:
        """Add a step that has ended, with the clocks at its end."""
        self._waiting.append(reading)

    def add_logged(self, steps: list[LoggedStep]) -> None:
        """Add steps of the loss log."""
        self._logged |= {logged.step: logged for logged in steps}
        self._newest = max(self._newest, max(self._logged, default=0))

    def records(self, *, is_over: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the records that are complete; if `is_over`, also the records of unlogged steps."""
        while self._waiting and (is_over or self._waiting[0].step <= self._newest):
            reading = self._waiting.popleft()
            logged = self._logged.pop(reading.step, None)
            if logged is not None:
                if logged.loss is None:
                    self._skipped += 1
                else:
                    self._losses.append(logged.loss)
            if reading.step % self._every == 0 or reading.step == self._last:
                yield self._record(reading, lr=logged.lr if logged else None)

    def _record(self, reading: ClockReading, *, lr: float | None) -> dict[str, Any]:
        loss = sum(self._losses) / len(self._losses) if self._losses else None
        fields = {
            "step": reading.step,
            "images": reading.step * self._images,
            "loss": loss,
            "lr": lr or None,
            "skipped_images": self._skipped * self._images or None,
            **reading.fields(),
        }
        self._losses, self._skipped = [], 0
        return fields
