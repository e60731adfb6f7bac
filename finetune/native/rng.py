"""All randomness of training, as a pure function of (seed, image number).

The image number counts every image that a run has seen. Draws therefore depend neither on the
rank or microbatch that carries an image, nor on where the run was resumed (Philox: Salmon et al.
2011).
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_ORDER, _IMAGE, _EVALUATION, _WEIGHTS = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class ImageRandomness:
    """The draws of one image: time `t` in 0..1 (1 is noise), caption dropout, noise."""

    t: float
    drop_caption: bool
    noise: NDArray[np.float32]


def _generator(seed: int, stream: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, 0, number]))


def epoch_order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return the permutation in which an epoch visits `size` items."""
    return _generator(seed, _ORDER, epoch).permutation(size)


def image_randomness(
    seed: int, number: int, *, shape: tuple[int, ...], dropout: float
) -> ImageRandomness:
    """Return the draws of image `number`, whose latent has `shape` `[C, h, w]`."""
    generator = _generator(seed, _IMAGE, number)
    u, drop = generator.random(2)
    return ImageRandomness(
        t=flow_time(float(u)),
        drop_caption=bool(drop < dropout),
        noise=generator.standard_normal(shape, dtype=np.float32),
    )


def flow_time(u: float) -> float:
    """Return the `u`-quantile of the times: the sigmoid of a normal (Esser et al. 2024)."""
    # The normal distribution has no quantile at 0.
    return 1 / (1 + math.exp(-NormalDist().inv_cdf(max(u, 2.0**-53))))


def evaluation_times() -> list[float]:
    """Return the times of evaluations: the middles of four equally likely parts of the density."""
    return [flow_time((part + 0.5) / 4) for part in range(4)]


def evaluation_noise(image: int, number: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the fixed evaluation noise `number` of an image; it does not depend on the seed."""
    generator = _generator(0, _EVALUATION, (image << 32) + number)
    return generator.standard_normal(shape, dtype=np.float32)


def initial_lora_a(seed: int, number: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Return the initial `number`-th matrix A: uniform in +-1/sqrt(inputs), as in peft."""
    bound = 1 / math.sqrt(shape[1])
    uniform = _generator(seed, _WEIGHTS, number).random(shape, dtype=np.float32)
    return (2 * uniform - 1) * np.float32(bound)
