"""The gradient noise scale from the norms of microbatch gradients (McCandlish et al. 2018, A.1)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])


@dataclass(frozen=True, kw_only=True)
class Noise(Generic[Number]):
    """Unbiased estimates of |G|^2 and tr Sigma, the variance of the gradient of one image.

    Each may be negative. Their ratio B_simple = tr Sigma / |G|^2 is biased: average both over many
    steps first, then divide.
    """

    g2: Number
    s: Number


def noise_of(small: Number, big: Number, *, count: int, batch: int) -> Noise[Number]:
    """Estimate the noise from `count` >= 2 independent microbatches of `batch` images each.

    `small` is the mean of |g_k|^2, the squared norms of their mean gradients. `big` is |g|^2, the
    squared norm of the mean of all of them.
    """
    g2 = (count * big - small) / (count - 1)
    return Noise(g2=g2, s=batch * (small - g2))
