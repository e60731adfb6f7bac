"""The training loop: steps until the last or a wish to leave, and after each what is due."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import torch
from torch import Tensor

from train.engine.checkpoint import Saver
from train.engine.context import Course, Training
from train.engine.distributed import Agreement
from train.engine.profiler import ProfileWindow
from train.engine.stop import Wish


class Steps(Protocol):
    """How a kind of training takes its steps; every rank must ask."""

    def begin(self) -> None:
        """Do what comes before the first step of an attempt, on no clock but `setup`."""

    def take(self, step: int) -> Tensor:
        """Take optimizer step `step`, from 1; the norm of its gradients, on the device."""
        ...

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """What a record tells of an interval beside its loss; `norm` is that of its last step."""
        ...


class Looks(Protocol):
    """What a kind of training looks at on the way; every rank must ask."""

    def due(self, step: int) -> list[Callable[[], None]]:
        """The looks that are due after a step, in order; each books its own time."""
        ...


@dataclass(kw_only=True)
class Loop(Generic[Training]):
    """Trains, records and saves; what is trained, and looked at, is passed in."""

    course: Course[Training]
    steps: Steps
    looks: Looks
    saver: Saver
    window: ProfileWindow

    def __post_init__(self) -> None:
        self._saved_at = self.course.state.step
        self._norm: Tensor | None = None

    def train(self) -> Wish:
        """Train to the last step or until a wish to leave; saved unless a newer attempt runs."""
        course, agreement = self.course, Agreement()
        last, watch = course.attempt.config.train.steps, course.attempt.watch
        with contextlib.closing(course.hang):
            self.steps.begin()
            course.clocks.lap("setup", drain=True)
            agreement.vote(watch.wish())
            wish = Wish(agreement.settle())
            while course.state.step < last and wish is Wish.GO_ON:
                self._step()
                self._after_step()
                wish = Wish(agreement.vote(watch.wish()))
            course.hang.rests()
            wish = max(wish, Wish(agreement.settle()))
            course.finite.check()
            if course.state.step == last and wish is not Wish.LEAVE:
                wish = Wish.GO_ON
            elif wish is not Wish.LEAVE and course.state.step > self._saved_at:
                self._record()
                self._save()
            self.window.close()
            self._finish_saving(wish)
        return wish

    def _step(self) -> None:
        course, step = self.course, self.course.state.step + 1
        if self.window.opens_before(step):
            # Profiled steps are recorded apart.
            self._record()
            self.window.open()
        course.hang.begins(step)
        self._norm = self.steps.take(step)
        course.state.step = step
        course.state.images += course.attempt.config.train.global_batch
        course.interval.steps += 1
        course.clocks.lap("train")

    def _after_step(self) -> None:
        """What is due after a step: a record, a save, looks."""
        course, config, step = self.course, self.course.attempt.config, self.course.state.step
        saves = step % config.checkpoint.every == 0 or step == config.train.steps
        looks = self.looks.due(step)
        course.hang.passes()
        if saves or looks:
            course.hang.rests()
        closes = self.window.closes_after_step()
        if closes or saves or looks or step % config.log.every == 0:
            self._record()
        if closes:
            self.window.close()
        if saves:
            self._save()
        for look in looks:
            look()
        self._tell_saved()

    def _record(self) -> None:
        """Record the steps since the last record, if there are any."""
        course, config = self.course, self.course.attempt.config
        if self._norm is None or not course.interval.steps:
            return
        course.finite.check()
        course.clocks.lap("train", drain=True)
        images = course.interval.steps * config.train.global_batch
        fields: dict[str, Any] = dict(course.at)
        fields |= course.interval.close(images=images, tensor=course.division.tensor)
        fields |= self.steps.fields(self._norm)
        device = course.attempt.ranks.device
        if device.type == "cuda":
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
        course.arrivals.write(course.state.step)
        course.journal.step(fields | course.clocks.fields(), steps=config.train.steps)

    def _save(self) -> None:
        """Save a checkpoint, or begin to."""
        with self.window.region("save"):
            self.saver.save(self.course.state)
        self._saved_at = self.course.state.step
        self.course.clocks.lap("save", drain=True)
        self._tell_saved()

    def _tell_saved(self) -> None:
        for saved in self.saver.finished():
            self.course.journal.event("saved", step=saved.step, images=saved.images)

    def _finish_saving(self, wish: Wish) -> None:
        if wish is Wish.LEAVE:
            self.saver.abandon()
            return
        self.saver.wait()
        self.course.clocks.lap("save")
        self._tell_saved()
