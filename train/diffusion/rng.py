"""Order, noise, times, dropped labels and flips as a pure function of (seed, epoch, index).

Each example has its own counter in numpy's Philox (Salmon et al. 2011). Its random numbers do not
depend on the rank, worker or microbatch that loads it, nor on where the run was resumed. They are
drawn on the CPU, so an A40 and an A100 train on the same bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs.schema.objective import Objective

_ORDER, _EXAMPLE, _SAMPLE, _SPLIT, _DUMMY, _POSTERIOR, _VALIDATION = 1, 2, 3, 4, 5, 6, 7
_LABEL, _PROBE, _ROUTE = 8, 10, 11


@dataclass(frozen=True, kw_only=True)
class ExampleRandomness:
    """The random numbers of one example: `t` in 0..1, and noise of the image's shape."""

    t: float
    drop_label: bool
    flip: bool
    noise: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The augmentation of an example in one epoch: mirrored or not, and noise of its own."""

    flip: bool
    seed: int
    epoch: int
    index: int

    def noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return standard normal noise, with which latents are sampled from the VAE's posterior."""
        generator = _generator(self.seed, _POSTERIOR, self.index, self.epoch)
        return generator.standard_normal(shape, dtype=np.float32)


def _generator(seed: int, stream: int, index: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, epoch]))


def epoch_order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return the order in which epoch `epoch` visits `size` examples."""
    return _generator(seed, _ORDER, 0, epoch).permutation(size)


def example_randomness(
    seed: int,
    epoch: int,
    index: int,
    *,
    shape: tuple[int, ...],
    objective: Objective,
) -> ExampleRandomness:
    """Return the random numbers of example `index` in `epoch`."""
    generator = _generator(seed, _EXAMPLE, index, epoch)
    u, drop, flip = generator.random(3)
    normal = generator.standard_normal()
    return ExampleRandomness(
        t=flow_time(u, normal, objective),
        drop_label=bool(drop < objective.label_dropout),
        flip=bool(flip < 0.5),
        noise=generator.standard_normal(shape, dtype=np.float32),
    )


def flow_time(u: float, normal: float, objective: Objective) -> float:
    """Return a time of the objective's density from a uniform and a normal random number.

    The densities follow Esser et al. 2024. The time rises with both numbers.
    """
    if objective.timesteps == "logit_normal":
        return float(1 / (1 + np.exp(-(objective.logit_mean + objective.logit_std * normal))))
    return float(u)


def kept_patches(seed: int, epoch: int, index: int, *, of: int, count: int) -> NDArray[np.int64]:
    """Return the `count` `of` an example's patches that skip no blocks, in ascending order."""
    return np.sort(_generator(seed, _ROUTE, index, epoch).permutation(of)[:count])


def probe_generator(seed: int, step: int, number: int) -> np.random.Generator:
    """Return the generator for microbatch `number` of a gradient noise measurement at `step`."""
    return _generator(seed, _PROBE, number, step)


def sample_noise(seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the initial noise of sample `index`, the same for any number of ranks."""
    return _generator(seed, _SAMPLE, index, 0).standard_normal(shape, dtype=np.float32)


def sample_label(seed: int, index: int, classes: int) -> int:
    """Return the label of sample `index` if labels are drawn uniformly."""
    return int(_generator(seed, _LABEL, index, 0).integers(classes))


def held_out_indices(size: int, share: float) -> NDArray[np.int64]:
    """Return the indices that no run trains on, sorted; the same for every seed."""
    chosen = _generator(0, _SPLIT, 0, 0).permutation(size)[: round(size * share)]
    return np.sort(chosen)


def dummy_latent(index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a random latent that differs for every index."""
    return _generator(0, _DUMMY, index, 0).standard_normal(shape, dtype=np.float32)


def validation_order(size: int) -> NDArray[np.int64]:
    """Return the order in which validation takes held-out examples, the same for every seed."""
    return _generator(0, _VALIDATION, 0, 0).permutation(size)


def validation_noise(index: int, stratum: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the noise for held-out example `index` at time `stratum`, the same at every step."""
    generator = _generator(1, _VALIDATION, index, stratum)
    return generator.standard_normal(shape, dtype=np.float32)
