"""What a pretraining looks at on the way: the held-out loss, its gradients' noise, samples."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from configs.schema import Pretrain
from train.data.latents.vae import decode_samples
from train.engine.attempt import TrainingContext
from train.engine.distributed import data_rank
from train.engine.metrics import log
from train.engine.profiler import ProfileWindow
from train.evaluate.sampler import SampleShare, grid_labels, sample, save_grid
from train.gradient_noise.online import OnlineNoise
from train.model.parallelize import autocast
from train.pretrain.train_state import TrainState
from train.pretrain.validation import HeldOutLoss


@dataclass(frozen=True, kw_only=True)
class PretrainEvaluator:
    """Looks at `learner`; where `validation` or `noise` is None, there is none of it."""

    context: TrainingContext[Pretrain]
    train_state: TrainState
    window: ProfileWindow
    validation: HeldOutLoss | None
    noise: OnlineNoise | None

    def due_evaluations(self, step: int) -> list[Callable[[], None]]:
        """The looks that are due after a step, in order: all of them after the last."""
        config = self.context.attempt.config
        last = step == config.train.steps
        evaluator: list[Callable[[], None]] = []
        if self.validation and _is_due(step, config.validation.every, last):
            evaluator.append(self.validate)
        if self.noise and self.noise.whole and _is_due(step, config.gns.whole_every, last):
            evaluator.append(self.probe_noise)
        if _is_due(step, config.sample.every, last):
            evaluator.append(self.draw_samples)
        return evaluator

    def validate(self) -> None:
        """Record the loss of the weights and of their average on held-out images."""
        assert self.validation is not None
        context, train_state = self.context, self.train_state
        with self._autocast():
            fields = {
                "validation_loss": self.validation.loss(train_state.network, train_state.objective)
            }
            if train_state.average.weights:
                with train_state.average.swapped_in():
                    averaged = self.validation.loss(train_state.network, train_state.objective)
                fields["validation_loss_ema"] = averaged
        context.clocks.lap("eval", drain=True)
        context.metrics.evaluation(context.at | fields)
        context.metrics.event("evaluated", step=context.state.step)

    def probe_noise(self) -> None:
        """Record the whole model's gradient noise, bin by bin."""
        assert self.noise is not None
        assert self.noise.whole is not None
        context, step = self.context, self.context.state.step
        found = self.noise.whole.measure(step, scale=self.train_state.scale.value)
        context.clocks.lap("eval", drain=True)
        if found is None:
            log.warning("step %d: a gradient's norm is not finite; no noise told", step)
            return
        context.metrics.measurement(context.at | {"gns_whole": found})
        context.metrics.event("evaluated", step=step)

    def draw_samples(self) -> None:
        """Draw a sample grid from the averaged weights."""
        context, train_state, attempt = self.context, self.train_state, self.context.attempt
        config, device, layout = attempt.config, attempt.ranks.device, context.layout
        number = data_rank(attempt.ranks, layout)
        share = SampleShare(index=number, count=layout.data_ranks, tensor=layout.tensor)
        with self.window.region("sample"), train_state.average.swapped_in(), self._autocast():
            images = sample(
                train_state.network,
                train_state.objective,
                grid_labels(config),
                config,
                share=share,
                device=device,
                seed=config.seed,
            )
        if images is not None:
            file = attempt.run.samples / f"step-{context.state.step:09d}.png"
            save_grid(
                decode_samples(images, config, device=device), file, columns=config.sample.per_class
            )
        context.clocks.lap("sample", drain=True)

    def _autocast(self) -> AbstractContextManager[object]:
        return autocast(
            self.context.attempt.config.train.precision, self.context.attempt.ranks.device
        )


def _is_due(step: int, every: int | None, last: bool) -> bool:
    return last or (every is not None and step % every == 0)
