"""Microbatches drawn for a measurement of the gradient's noise: from one bin of t, or from all.

They are independent of one another and of the training's own, each of exactly as many images as
was asked for, and depend on the seed, the step and their number alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.data.source import Source
from train.diffusion.objective import time_shift
from train.diffusion.rng import Augmentation, epoch_order, probe_generator
from train.diffusion.timesteps import Bins, Density, Time, TimeSampler

# The time of an image from a uniform number of its own and its place in the microbatch.
Times = Callable[[float, int], Time]


def binned_times(config: Pretrain, bins: Bins, k: int) -> Times:
    """Times by the density within bin `k`."""
    density = Density(objective=config.objective, shift=time_shift(config))
    low, high = (density.cdf(float(edge)) for edge in bins.edges[k : k + 2])
    # Halving ends a rounding beyond an edge: no time may fall into the next bin.
    inside = np.nextafter(np.float32(bins.edges[k + 1]), np.float32(0))
    return lambda u, position: Time(
        t=float(np.clip(density.quantile(low + u * (high - low)), bins.edges[k], inside))
    )


def all_times(config: Pretrain) -> Times:
    """Times by the objective's own sampler, a microbatch being of whole groups of strata."""
    shift, seed = time_shift(config), config.seed
    density = Density(objective=config.objective, shift=shift)
    sampler = TimeSampler(config.objective, shift=shift, seed=seed)
    return lambda u, position: sampler.time(u, t=density.quantile(u), position=position)


@dataclass(frozen=True, kw_only=True)
class NoiseMicrobatches:
    """Draws microbatches of `images` images each from a share of a training set."""

    source: Source
    config: Pretrain
    images: int
    seed: int
    share: float = 1.0

    def batch(self, times: Times, *, step: int, number: int) -> Microbatch:
        """Microbatch `number` at `step`: images with replacement, variants and noise anew."""
        data, chance = self.config.data, probe_generator(self.seed, step, number)
        indices = self._among[chance.integers(len(self._among), size=self.images)]
        u, drop, flip = chance.random((3, self.images))
        noise = chance.standard_normal(
            (self.images, data.channels, data.size, data.size), dtype=np.float32
        )
        drawn = [
            self._drawn(int(index), number * self.images + n, flips=bool(flip[n] < 0.5))
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
    def _among(self) -> NDArray[np.int64]:
        """The images of the share; a smaller share's are among a larger one's."""
        size = len(self.source)
        return epoch_order(self.seed, 0, size)[: max(1, round(self.share * size))]

    def _drawn(self, index: int, position: int, *, flips: bool) -> tuple[NDArray[np.float32], int]:
        flip = self.config.data.flip and flips
        variant = Augmentation(flip=flip, seed=self.seed, epoch=position, index=index)
        return self.source.augmented(index, variant)
