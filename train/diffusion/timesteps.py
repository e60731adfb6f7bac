"""The density of times, its bins, and the samplers that draw an example's time from it.

With a sampler other than `uniform`, the time depends on the example's position in the stream of
images, or has a loss weight. In both cases the weighted loss keeps its mean under the density.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.schema.objective import Objective
from train.diffusion.rng import flow_time, strata_order

_NORMAL = NormalDist()
# The normal distribution has no quantile at 0 or 1.
_MIN_U = 2.0**-53
_BISECTIONS = 60

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Density:
    """The density of t of an objective; `shift` is a of t' = a t / (1 + (a - 1) t)."""

    objective: Objective
    shift: float = 1.0

    def quantile(self, u: float) -> float:
        """Return the time below which a share `u` of all times lies."""
        u = min(max(u, _MIN_U), 1 - _MIN_U)
        if self.objective.timesteps == "mode":
            u = 1 - u  # its time falls with u
        return flow_time(u, _NORMAL.inv_cdf(u), self.objective, shift=self.shift)

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


def bin_indices(t: Tensor, edges: Tensor) -> Tensor:
    """Return the bin of each time `[m]`; `edges` is `[bins + 1]` in float64."""
    return torch.searchsorted(edges[1:-1].contiguous(), t.double(), right=True)


@dataclass(frozen=True, kw_only=True)
class Time:
    """A time and the weight of its loss."""

    t: float
    weight: float = 1.0


class TimeSampler:
    """Draw times by `objective.sampler`, as a pure function of the seed and the arguments."""

    def __init__(self, objective: Objective, *, shift: float, seed: int) -> None:
        self._objective, self._seed = objective, seed
        self._density = Density(objective=objective, shift=shift)
        self._group, self._order = -1, np.arange(0)
        if objective.bin_shares is not None:
            self._init_bins(np.asarray(objective.bin_shares, dtype=np.float64))

    def time(self, u: float, *, t: float, position: int) -> Time:
        """Return the time of the example at `position` in the stream of images.

        `u` in 0..1 is the example's uniform random number, and `t` its time if it is drawn from
        the density independently of all others.
        """
        if self._objective.sampler == "uniform":
            return Time(t=t)
        if self._objective.sampler == "stratified":
            return Time(t=self._density.quantile(self._stratified(u, position)))
        return self._by_bin_shares(u)

    def _stratified(self, u: float, position: int) -> float:
        """Return a uniform number within the stratum of this position in its group."""
        strata = self._objective.strata
        group, slot = divmod(position, strata)
        if group != self._group:
            self._group, self._order = group, strata_order(self._seed, group, strata)
        return (int(self._order[slot]) + u) / strata

    def _init_bins(self, shares: Floats) -> None:
        cdf = np.array([self._density.cdf(float(edge)) for edge in Bins(count=len(shares)).edges])
        reachable = np.where(np.diff(cdf) > 0, shares, 0.0)
        self._shares, self._cdf = reachable / reachable.sum(), cdf
        self._ends = np.cumsum(self._shares)[:-1]

    def _by_bin_shares(self, u: float) -> Time:
        """Choose a bin by its share, then a time within it by the density."""
        k = int(np.searchsorted(self._ends, u, side="right"))
        share, low, high = self._shares[k], self._cdf[k], self._cdf[k + 1]
        begin = self._ends[k - 1] if k else 0.0
        within = min(max((u - begin) / share, 0.0), 1.0)
        t = self._density.quantile(low + within * (high - low))
        return Time(t=t, weight=float((high - low) / share))
