"""A value with its interval, and what printed digits say of its resolution."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval, which is None if there are too few data for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def map(self, function: Callable[[float], float]) -> "Estimate":
        """Return an increasing function of the estimate and of the ends of its interval."""
        low, high = (None if end is None else function(end) for end in (self.low, self.high))
        return Estimate(value=function(self.value), low=low, high=high)


def estimate_fields(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return `name`, `name_low` and `name_high` as fields of a row; None if unknown."""
    found = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


def decimal_grid(readings: Floats) -> float | None:
    """Return the power of ten that all readings are multiples of: their resolution as printed.

    Return None if there is none down to a microsecond, or for fewer than three readings.
    """
    if len(readings) < 3:
        return None
    for exponent in range(2, -7, -1):
        count = readings / 10.0**exponent
        slack = 4 * np.finfo(np.float64).eps * float(np.abs(count).max())
        if slack > 0.05:
            return None
        if (np.abs(count - np.round(count)) <= max(slack, 1e-6)).all():
            return float(10.0**exponent)
    return None


def mean_band(values: Floats) -> Floats:
    """Return low end, mean and high end [3, n] of the means over runs of `[runs, n]` values."""
    runs = len(values)
    mean = values.mean(axis=0)
    half = stdtrit(runs - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(runs)
    return np.stack([mean - half, mean, mean + half])
