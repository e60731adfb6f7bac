"""A grid of samples from the EMA of the weights."""

from collections.abc import Callable

from torch import Tensor

from train.data.latents.vae import decode_samples
from train.engine.clocks import region
from train.engine.part import Part
from train.evaluate.sampler import grid_labels, sample, save_grid
from train.model.parallelize import autocast
from train.parts import Pretraining


def make(training: Pretraining) -> Part | None:
    """Return the part of `sample`, which every run has."""
    return EmaSamples(training)


class EmaSamples(Part):
    """Draws a grid every `sample.every` steps, and after the last."""

    order, clock = 60, "sample"

    def __init__(self, training: Pretraining) -> None:
        config = training.attempt.config
        self.every, self._training = config.sample.every or config.train.steps, training

    def after(self, step: int) -> None:
        """Write the grid of a step, on rank 0."""
        attempt = self._training.attempt
        images = draw_from_ema(self._training, grid_labels(attempt.config), then=Tensor.cpu)
        if images is not None:
            file = attempt.run.samples / f"step-{step:09d}.png"
            pixels = decode_samples(images, attempt.config, device=attempt.ranks.device)
            save_grid(pixels, file, columns=attempt.config.sample.per_class)


def draw_from_ema(
    training: Pretraining, labels: Tensor, *, then: Callable[[Tensor], Tensor]
) -> Tensor | None:
    """Draw an image for each of `labels` from the EMA of the weights, as `sample` does."""
    train_state, attempt = training.train_state, training.attempt
    precision = autocast(attempt.config.train.precision, attempt.ranks.device)
    with region("sample"), train_state.ema.swapped_in(), precision:
        return sample(
            train_state.network,
            train_state.objective,
            labels,
            attempt.config,
            layout=training.context.layout,
            ranks=attempt.ranks,
            then=then,
        )
