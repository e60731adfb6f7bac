"""Draw microbatches for measuring the gradient's noise, from one bin of t or from all of t.

They are independent of one another and of the training's own microbatches. Each has exactly the
requested number of images and depends only on the seed, the step and its number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.data.source import Image, Source
from train.diffusion.objective import time_shift
from train.diffusion.rng import Augmentation, epoch_order, probe_generator
from train.diffusion.timesteps import Bins, Density, Time, TimeSampler

# Returns the time of an image, given a uniform number and the image's position in the stream.
Times = Callable[[float, int], Time]


def bin_weights(config: Pretrain, bins: Bins) -> list[float]:
    """Return the share of the objective's density of t in each bin."""
    return bins.weights(_density(config)).tolist()


def binned_times(config: Pretrain, bins: Bins, k: int) -> Times:
    """Return times drawn from the density within bin `k`."""
    density = _density(config)
    low, high = (density.cdf(float(edge)) for edge in bins.edges[k : k + 2])
    # Bisection ends within rounding of an edge: keep every time out of the next bin.
    inside = np.nextafter(np.float32(bins.edges[k + 1]), np.float32(0))
    return lambda u, position: Time(
        t=float(np.clip(density.quantile(low + u * (high - low)), bins.edges[k], inside))
    )


def all_times(config: Pretrain) -> Times:
    """Return times drawn by the objective's own sampler; a microbatch holds whole strata groups."""
    density = _density(config)
    sampler = TimeSampler(config.objective, shift=time_shift(config), seed=config.seed)
    return lambda u, position: sampler.time(u, t=density.quantile(u), position=position)


def _density(config: Pretrain) -> Density:
    return Density(objective=config.objective, shift=time_shift(config))


@dataclass(frozen=True, kw_only=True)
class NoiseMicrobatches:
    """Draws microbatches of `images` images each from a `share` of a training set."""

    source: Source
    config: Pretrain
    images: int
    seed: int
    share: float = 1.0

    def batch(self, times: Times, *, step: int, number: int) -> Microbatch:
        """Return microbatch `number` at `step`; its images are drawn with replacement."""
        data, generator = self.config.data, probe_generator(self.seed, step, number)
        indices = self._candidates[generator.integers(len(self._candidates), size=self.images)]
        u, drop, flip = generator.random((3, self.images))
        noise = generator.standard_normal(
            (self.images, data.channels, data.size, data.size), dtype=np.float32
        )
        drawn = [
            self._augmented(int(index), number * self.images + n, flips=bool(flip[n] < 0.5))
            for n, index in enumerate(indices)
        ]
        labels = np.array([label for _, label in drawn])
        labels[drop < self.config.objective.label_dropout] = data.classes
        moments = [times(u[n], number * self.images + n) for n in range(self.images)]
        return Microbatch(
            image=torch.from_numpy(np.stack([image for image, _ in drawn])),
            noise=torch.from_numpy(noise),
            t=torch.tensor([moment.t for moment in moments], dtype=torch.float32),
            label=torch.from_numpy(labels),
            weight=torch.tensor([moment.weight for moment in moments]),
        )

    @cached_property
    def _candidates(self) -> NDArray[np.int64]:
        """The indices in the share; a larger share contains every smaller one."""
        size = len(self.source)
        return epoch_order(self.seed, 0, size)[: max(1, round(self.share * size))]

    def _augmented(self, index: int, position: int, *, flips: bool) -> tuple[Image, int]:
        flip = self.config.data.flip and flips
        augmentation = Augmentation(flip=flip, seed=self.seed, epoch=position, index=index)
        return self.source.augmented(index, augmentation)
