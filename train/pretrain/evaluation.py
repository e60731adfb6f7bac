"""What a pretraining looks at on the way: the held-out loss, its gradients' noise, samples."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from configs.schema import Pretrain
from train.data.latents.vae import pictures
from train.engine.context import Course
from train.engine.distributed import data_rank
from train.engine.metrics import log
from train.engine.profiler import ProfileWindow
from train.evaluate.sampler import Place, grid_labels, sample, save_grid
from train.gradient_noise.online import NoiseWatch
from train.model.parallelize import autocast
from train.pretrain.train_state import Learner
from train.pretrain.validation import Validation


@dataclass(frozen=True, kw_only=True)
class PretrainingLooks:
    """Looks at `learner`; where `validation` or `noise` is None, there is none of it."""

    course: Course[Pretrain]
    learner: Learner
    window: ProfileWindow
    validation: Validation | None
    noise: NoiseWatch | None

    def due(self, step: int) -> list[Callable[[], None]]:
        """The looks that are due after a step, in order: all of them after the last."""
        config = self.course.attempt.config
        last = step == config.train.steps
        looks: list[Callable[[], None]] = []
        if self.validation and _is_due(step, config.validation.every, last):
            looks.append(self.validate)
        if self.noise and self.noise.whole and _is_due(step, config.gns.whole_every, last):
            looks.append(self.probe_noise)
        if _is_due(step, config.sample.every, last):
            looks.append(self.draw_samples)
        return looks

    def validate(self) -> None:
        """Record the loss of the weights and of their average on held-out images."""
        assert self.validation is not None
        course, learner = self.course, self.learner
        with self._autocast():
            fields = {"validation_loss": self.validation.loss(learner.network, learner.objective)}
            if learner.average.average:
                with learner.average.in_place():
                    averaged = self.validation.loss(learner.network, learner.objective)
                fields["validation_loss_ema"] = averaged
        course.clocks.lap("eval", drain=True)
        course.journal.evaluation(course.at | fields)
        course.journal.event("evaluated", step=course.state.step)

    def probe_noise(self) -> None:
        """Record the whole model's gradient noise, bin by bin."""
        assert self.noise is not None
        assert self.noise.whole is not None
        course, step = self.course, self.course.state.step
        found = self.noise.whole.measure(step, scale=self.learner.scale.value)
        course.clocks.lap("eval", drain=True)
        if found is None:
            log.warning("step %d: a gradient's norm is not finite; no noise told", step)
            return
        course.journal.measurement(course.at | {"gns_whole": found})
        course.journal.event("evaluated", step=step)

    def draw_samples(self) -> None:
        """Draw a sample grid from the averaged weights."""
        course, learner, attempt = self.course, self.learner, self.course.attempt
        config, device, division = attempt.config, attempt.ranks.device, course.division
        number = data_rank(attempt.ranks, division)
        place = Place(number=number, count=division.data_ranks, tensor=division.tensor)
        with self.window.region("sample"), learner.average.in_place(), self._autocast():
            images = sample(
                learner.network,
                learner.objective,
                grid_labels(config),
                config,
                place=place,
                device=device,
                seed=config.seed,
            )
        if images is not None:
            file = attempt.run.samples / f"step-{course.state.step:09d}.png"
            save_grid(
                pictures(images, config, device=device), file, columns=config.sample.per_class
            )
        course.clocks.lap("sample", drain=True)

    def _autocast(self) -> AbstractContextManager[object]:
        return autocast(
            self.course.attempt.config.train.precision, self.course.attempt.ranks.device
        )


def _is_due(step: int, every: int | None, last: bool) -> bool:
    return last or (every is not None and step % every == 0)
