"""The gradient noise scale from the norms of microbatch gradients (McCandlish et al. 2018, A.1)."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])


@dataclass(frozen=True, kw_only=True)
class Noise(Generic[Number]):
    """Unbiased samples of |G|^2 and of tr Sigma, the variance of one image's gradient.

    Each may be negative. Their ratio B_simple = tr Sigma / |G|^2 is not unbiased: average both
    over many steps first, then divide.
    """

    g2: Number
    s: Number


def noise_of(small: Number, big: Number, *, count: int, batch: int) -> Noise[Number]:
    """What `count` >= 2 independent microbatches of `batch` images each tell.

    `small` is the mean of |g_k|^2, the squared norms of their mean gradients, and `big` is |g|^2,
    that of the mean of all.
    """
    g2 = (count * big - small) / (count - 1)
    return Noise(g2=g2, s=batch * (small - g2))
