"""Order, noise, times and dropped captions as a pure function of (seed, image number).

The image number counts all images that a run has seen, so what is drawn depends neither on which
rank or microbatch carries the image nor on where the run was resumed (Philox: Salmon et al. 2011).
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_ORDER, _IMAGE, _STRATUM, _WEIGHTS = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class ImageRandomness:
    """What chance decides for one image: `t` in 0..1 (1 is noise), and noise of its shape."""

    t: float
    drop_caption: bool
    noise: NDArray[np.float32]


def _generator(seed: int, stream: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, 0, number]))


def order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which epoch `epoch` visits `size` examples."""
    return _generator(seed, _ORDER, epoch).permutation(size)


def draw(
    seed: int, number: int, *, shape: tuple[int, ...], timesteps: str, dropout: float
) -> ImageRandomness:
    """The draw of image `number`, whose latent has `shape` `[C, h, w]`."""
    generator = _generator(seed, _IMAGE, number)
    u, drop = generator.random(2)
    return ImageRandomness(
        t=flow_time(float(u), timesteps, tokens=shape[1] * shape[2] // 4),
        drop_caption=bool(drop < dropout),
        noise=generator.standard_normal(shape, dtype=np.float32),
    )


def flow_time(u: float, timesteps: str, *, tokens: int) -> float:
    """The time at quantile `u` of a density over 0..1, rising with it.

    `sigmoid` of a standard normal (Esser et al. 2024); `linear`, even; or `shift`, even and moved
    as Flux moves the times of its samples by the tokens of the image.
    """
    if timesteps == "sigmoid":
        # Of 0 there is no quantile.
        return 1 / (1 + math.exp(-NormalDist().inv_cdf(max(u, 2.0**-53))))
    if timesteps == "shift":
        a = math.exp(sample_shift(tokens))
        return a * u / (1 + (a - 1) * u)
    return u


def sample_shift(tokens: int) -> float:
    """The logarithm of the shift: 0.5 at 256 tokens, 1.15 at 4096, a line between and beyond."""
    return 0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256)


def stratum_noise(image: int, noise: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The `noise`-th noise that image `image` is always judged with, the same for every seed."""
    generator = _generator(0, _STRATUM, (image << 32) + noise)
    return generator.standard_normal(shape, dtype=np.float32)


def first_matrix(seed: int, number: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    """The `number`-th matrix A before training, even in +-1/sqrt(inputs), as peft draws it."""
    bound = 1 / math.sqrt(shape[1])
    drawn = _generator(seed, _WEIGHTS, number).random(shape, dtype=np.float32)
    return (2 * drawn - 1) * np.float32(bound)
