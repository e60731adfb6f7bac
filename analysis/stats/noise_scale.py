"""The gradient noise scale of a stretch of training: ratios of averages, with intervals.

Each sample has |g|^2 of the mean gradient of K microbatches, and the mean |g_k|^2 of these. They
give unbiased |G|^2 = (K |g|^2 - |g_k|^2) / (K - 1), and tr Sigma = batch (|g_k|^2 - |G|^2)
(McCandlish et al. 2018, A.1). Samples, negative ones included, are averaged before anything is
divided.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.jackknife import jackknife

DETERMINED, UNDETERMINED = "determined", "undetermined"


@dataclass(frozen=True, kw_only=True)
class NoiseSamples:
    """Samples [n, 3] of microbatches of `batch` images: |G|^2, |g_k|^2, and their weight."""

    columns: Floats
    batch: int = 1

    @classmethod
    def of(
        cls,
        small: Floats,
        big: Floats,
        *,
        count: int | Floats,
        batch: int,
        weight: Floats | None = None,
    ) -> "NoiseSamples":
        """Return samples from the mean |g_k|^2 and the |g|^2 of `count` microbatches, each [n].

        A sample stands for `weight` [n] steps, by default one.
        """
        weight = np.ones(len(small)) if weight is None else weight
        g2 = (count * big - small) / (count - 1)
        return cls(columns=np.stack([g2 * weight, small * weight, weight], axis=1), batch=batch)

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


def noise_scale(samples: NoiseSamples) -> NoiseScale:
    """Return the noise scale of all samples together.

    It is undetermined if the interval of |G|^2 or of tr Sigma touches zero, or if there are fewer
    than `MIN_VALUES` samples. Its interval is the jackknife's, on the log scale.
    """
    columns, batch = samples.columns, samples.batch
    g2 = jackknife(columns, _g2)
    s = jackknife(columns, lambda sums: _s(sums, batch))
    b_simple = None
    if (g2.low or 0) > 0 and (s.low or 0) > 0:
        log = jackknife(columns, lambda sums: np.log(_s(sums, batch) / _g2(sums)))
        b_simple = log.map(math.exp)
    return NoiseScale(g2=g2, s=s, b_simple=b_simple)


def _g2(sums: Floats) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 2])


def _s(sums: Floats, batch: int) -> Floats:
    return np.asarray(batch * (sums[..., 1] / sums[..., 2] - _g2(sums)))
