"""The density of the times of an objective, and its bins."""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from configs.schema.objective import Objective
from train.diffusion.rng import flow_time

_NORMAL = NormalDist()
# The normal distribution has no quantile at 0 or 1.
_MIN_U = 2.0**-53
_BISECTIONS = 60

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Density:
    """The density of t of an objective."""

    objective: Objective

    def quantile(self, u: float) -> float:
        """Return the time below which a share `u` of all times lies."""
        u = min(max(u, _MIN_U), 1 - _MIN_U)
        return flow_time(u, _NORMAL.inv_cdf(u), self.objective)

    def cdf(self, t: float) -> float:
        """Return the share of times below `t`, found by bisection."""
        if t <= 0 or t >= 1:
            return float(t >= 1)
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.quantile(middle) < t else (low, middle)
        return (low + high) / 2


@dataclass(frozen=True, kw_only=True)
class Bins:
    """`count` equal bins of t without gaps: each includes its lower edge, the last also t = 1."""

    count: int

    @cached_property
    def edges(self) -> Floats:
        """The edges of all bins, `[count + 1]`."""
        return np.arange(self.count + 1) / self.count

    def weights(self, density: Density) -> Floats:
        """Return the probability of each bin, `[count]`."""
        return np.diff([density.cdf(float(edge)) for edge in self.edges])
