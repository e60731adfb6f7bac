"""Times of a batch: their density, its parts, and how an example's time is drawn from it.

With samplers other than `uniform` the time depends on the example's place in the stream of images,
or comes with a weight; either way the weighted loss has the mean that it has under the density.
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
_LEAST = 2.0**-53
_HALVINGS = 60

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Density:
    """The density of t that an objective asks for; `shift` is a of t' = a t / (1 + (a-1) t)."""

    objective: Objective
    shift: float = 1.0

    def quantile(self, u: float) -> float:
        """The time below which a share `u` of all times lies."""
        u = min(max(u, _LEAST), 1 - _LEAST)
        if self.objective.timesteps == "mode":
            u = 1 - u  # whose time falls with u
        return flow_time(u, _NORMAL.inv_cdf(u), self.objective, shift=self.shift)

    def cdf(self, t: float) -> float:
        """The share of times below `t`, by halving."""
        if t <= 0 or t >= 1:
            return float(t >= 1)
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.quantile(middle) < t else (low, middle)
        return (low + high) / 2


@dataclass(frozen=True, kw_only=True)
class Bins:
    """`count` equal bins of t that leave no gap: half-open, the last one with t = 1."""

    count: int

    @cached_property
    def edges(self) -> Floats:
        """The ends of all bins, [count + 1]."""
        return np.arange(self.count + 1) / self.count

    def weights(self, density: Density) -> Floats:
        """How much of the density each bin holds, [count]."""
        return np.diff([density.cdf(float(edge)) for edge in self.edges])


def bin_indices(t: Tensor, edges: Tensor) -> Tensor:
    """The bin of each time `[m]`, of `edges` `[bins + 1]` in float64: each is in exactly one."""
    return torch.searchsorted(edges[1:-1].contiguous(), t.double(), right=True)


@dataclass(frozen=True, kw_only=True)
class Time:
    """A time and the weight of its loss."""

    t: float
    weight: float = 1.0


class TimeSampler:
    """Draws times as `objective.sampler` says; a pure function of the seed and what is passed."""

    def __init__(self, objective: Objective, *, shift: float, seed: int) -> None:
        self._objective, self._seed = objective, seed
        self._density = Density(objective=objective, shift=shift)
        self._group, self._order = -1, np.arange(0)
        if objective.bin_shares is not None:
            self._begin_bins(np.asarray(objective.bin_shares, dtype=np.float64))

    def time(self, u: float, *, drawn: float, position: int) -> Time:
        """The time of the example at `position` in the stream of images.

        `u` in 0..1 is its own; `drawn` is the time drawn from the density by itself.
        """
        if self._objective.sampler == "uniform":
            return Time(t=drawn)
        if self._objective.sampler == "stratified":
            return Time(t=self._density.quantile(self._stratified(u, position)))
        return self._by_variance(u)

    def _stratified(self, u: float, position: int) -> float:
        """A place in the part of the density that is this position's in its group."""
        strata = self._objective.strata
        group, slot = divmod(position, strata)
        if group != self._group:
            self._group, self._order = group, strata_order(self._seed, group, strata)
        return (int(self._order[slot]) + u) / strata

    def _begin_bins(self, shares: Floats) -> None:
        bins = Bins(count=len(shares))
        below = np.array([self._density.cdf(float(edge)) for edge in bins.edges])
        wanted = np.where(np.diff(below) > 0, shares, 0.0)
        self._shares, self._below = wanted / wanted.sum(), below
        self._ends = np.cumsum(self._shares)[:-1]

    def _by_variance(self, u: float) -> Time:
        """A bin by its share, and within it a time by the density."""
        k = int(np.searchsorted(self._ends, u, side="right"))
        share, low, high = self._shares[k], self._below[k], self._below[k + 1]
        begin = self._ends[k - 1] if k else 0.0
        within = min(max((u - begin) / share, 0.0), 1.0)
        t = self._density.quantile(low + within * (high - low))
        return Time(t=t, weight=float((high - low) / share))
