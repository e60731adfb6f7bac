"""Order, noise, times, dropped labels and flips as a pure function of (seed, epoch, index).

Each example has a counter of its own in numpy's Philox (Salmon et al. 2011), so what is drawn
for it does not depend on which rank, worker or microbatch carries it, nor on where the run was
resumed, and a CPU draws the bits that an A40 and an A100 train on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs.schema.objective import Objective

_ORDER, _EXAMPLE, _SAMPLE, _SPLIT, _DUMMY, _POSTERIOR, _VALIDATION = 1, 2, 3, 4, 5, 6, 7
_LABEL, _STRATA, _PROBE = 8, 9, 10


@dataclass(frozen=True, kw_only=True)
class ExampleRandomness:
    """What chance decides for one example: `t` in 0..1, noise of the image's shape.

    `u` is uniform in 0..1, for samplers that draw another time.
    """

    t: float
    u: float
    drop_label: bool
    flip: bool
    noise: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Which variant of an example an epoch shows: mirrored or not, and noise of its own."""

    flip: bool
    seed: int
    epoch: int
    index: int

    def noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal; a source of latents draws from the VAE's posterior with it."""
        generator = _generator(self.seed, _POSTERIOR, self.index, self.epoch)
        return generator.standard_normal(shape, dtype=np.float32)


def _generator(seed: int, stream: int, index: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, epoch]))


def epoch_order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which epoch `epoch` visits `size` examples."""
    return _generator(seed, _ORDER, 0, epoch).permutation(size)


def example_randomness(
    seed: int,
    epoch: int,
    index: int,
    *,
    shape: tuple[int, ...],
    objective: Objective,
    shift: float = 1.0,
) -> ExampleRandomness:
    """The draw of example `index` in epoch `epoch`; `shift` is a of t' = a t / (1 + (a-1) t)."""
    generator = _generator(seed, _EXAMPLE, index, epoch)
    u, drop, flip = generator.random(3)
    normal = generator.standard_normal()
    return ExampleRandomness(
        t=flow_time(u, normal, objective, shift=shift),
        u=float(u),
        drop_label=bool(drop < objective.label_dropout),
        flip=bool(flip < 0.5),
        noise=generator.standard_normal(shape, dtype=np.float32),
    )


def flow_time(u: float, normal: float, objective: Objective, *, shift: float) -> float:
    """A time of the objective's density (Esser et al. 2024) from a uniform and a normal draw.

    Where u rises with the normal draw, from one quantile to the next, so does the time (but for
    `mode`, where it falls).
    """
    if objective.timesteps == "logit_normal":
        t = 1 / (1 + np.exp(-(objective.logit_mean + objective.logit_std * normal)))
    elif objective.timesteps == "mode":
        t = 1 - u - objective.mode_scale * (np.cos(np.pi / 2 * u) ** 2 - 1 + u)
    else:
        t = u
    return float(shift * t / (1 + (shift - 1) * t))


def strata_order(seed: int, group: int, strata: int) -> NDArray[np.int64]:
    """Which of `strata` parts of the density each image of a group of as many gets."""
    return _generator(seed, _STRATA, 0, group).permutation(strata)


def probe_generator(seed: int, step: int, number: int) -> np.random.Generator:
    """What chance decides for microbatch `number` of a measurement of the gradient at `step`."""
    return _generator(seed, _PROBE, number, step)


def sample_noise(seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The noise that sample `index` starts from, for any number of ranks."""
    return _generator(seed, _SAMPLE, index, 0).standard_normal(shape, dtype=np.float32)


def sample_label(seed: int, index: int, classes: int) -> int:
    """The label of sample `index` where labels are drawn evenly."""
    return int(_generator(seed, _LABEL, index, 0).integers(classes))


def held_out_indices(size: int, share: float) -> NDArray[np.int64]:
    """The examples that no run trains on, the same for every seed, in rising order."""
    chosen = _generator(0, _SPLIT, 0, 0).permutation(size)[: round(size * share)]
    return np.sort(chosen)


def dummy_latent(index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The `index`-th of as many different random latents as are asked for."""
    return _generator(0, _DUMMY, index, 0).standard_normal(shape, dtype=np.float32)


def validation_order(size: int) -> NDArray[np.int64]:
    """The order in which held-out examples are taken for validation, the same for every seed."""
    return _generator(0, _VALIDATION, 0, 0).permutation(size)


def validation_noise(index: int, stratum: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The noise that held-out example `index` is always judged with at time `stratum`."""
    generator = _generator(1, _VALIDATION, index, stratum)
    return generator.standard_normal(shape, dtype=np.float32)
