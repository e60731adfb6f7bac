"""The gradient noise scale of a stretch of training: ratios of averages, with intervals.

Each sample is a Gram matrix of gradients (of K microbatches, or of the images of one bin of
timesteps), of which only sums are kept. The mean of its off-diagonal is unbiased for |G|^2, and
batch x (mean of the diagonal - that) for tr Sigma (McCandlish et al. 2018, A.1). Samples,
negative ones included, are averaged before anything is divided.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.jackknife import jackknife

DETERMINED, UNDETERMINED = "determined", "undetermined"


@dataclass(frozen=True, kw_only=True)
class GramSums:
    """Sums over Gram matrices of gradients of `batch` images each, for `n` samples.

    The `columns` [n, 4] are `products`, the sum of `pairs` off-diagonal entries, their number,
    `squares`, the sum of `counts` diagonal ones, and their number.
    """

    columns: Floats
    batch: int = 1

    @classmethod
    def of(
        cls, *, products: Floats, pairs: Floats, squares: Floats, counts: Floats, batch: int = 1
    ) -> "GramSums":
        """Return the sums of columns [n]."""
        return cls(columns=np.stack([products, pairs, squares, counts], axis=1), batch=batch)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, kw_only=True)
class NoiseScale:
    """|G|^2, tr Sigma, and the noise scale B_simple in images if both differ from zero."""

    g2: Estimate
    s: Estimate
    b_simple: Estimate | None

    @property
    def verdict(self) -> str:
        """Whether the data determine the noise scale."""
        return UNDETERMINED if self.b_simple is None else DETERMINED


def noise_scale(sums: GramSums) -> NoiseScale:
    """Return the noise scale of all samples together.

    It is undetermined if the interval of |G|^2 or of tr Sigma touches zero, or if there are fewer
    than `MIN_VALUES` samples. Its interval is the jackknife's, on the log scale.
    """
    columns, batch = sums.columns, sums.batch
    g2 = jackknife(columns, _g2)
    s = jackknife(columns, lambda sums: _s(sums, batch))
    b_simple = None
    if (g2.low or 0) > 0 and (s.low or 0) > 0:
        log = jackknife(columns, lambda sums: np.log(_s(sums, batch) / _g2(sums)))
        b_simple = log.map(math.exp)
    return NoiseScale(g2=g2, s=s, b_simple=b_simple)


def _g2(sums: Floats) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 1])


def _s(sums: Floats, batch: int) -> Floats:
    return np.asarray(batch * (sums[..., 2] / sums[..., 3] - _g2(sums)))
