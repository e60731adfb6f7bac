"""Random processes: durations of records with a known mean, and losses with a known level."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from benchmarks.analysis_coverage.scenario import Floats, Rng


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Relative durations of records [n], their true mean, and the standard deviation of the mean.

    `mean` is over the whole run also if the speed changes for good (`lasting`). `tau` is the
    autocorrelation time in records.
    """

    values: Floats
    mean: float
    sd: float
    tau: float = 1.0
    lasting: bool = False


Process = Callable[[Rng], Durations]


def of(process: Callable[..., Durations], n: int, **fields: float) -> Process:
    """Return a process of `n` records and the given parameters."""
    return lambda rng: process(rng, n, **fields)


def correlated(rng: Rng, n: int, rho: float) -> Floats:
    """Return stationary first-order autoregressive noise [n] of variance 1."""
    shocks = rng.standard_normal(n) * np.sqrt(1 - rho * rho)
    shocks[0] = rng.standard_normal()
    return np.asarray(lfilter([1.0], [1.0, -rho], shocks), dtype=np.float64)


def white(rng: Rng, n: int, *, cv: float = 0.02) -> Durations:
    """Independent lognormal durations of mean 1."""
    return lognormal(rng, n, sigma=cv)


def lognormal(rng: Rng, n: int, *, sigma: float) -> Durations:
    """Independent lognormal durations of mean 1; a large `sigma` is skewed."""
    values = np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2)
    return Durations(values=values, mean=1.0, sd=sigma / np.sqrt(n))


def autoregressive(rng: Rng, n: int, *, rho: float, cv: float = 0.02) -> Durations:
    """Lognormal durations whose logs are autocorrelated."""
    tau = (1 + rho) / (1 - rho)
    values = np.exp(cv * correlated(rng, n, rho) - cv**2 / 2)
    return Durations(values=values, mean=1.0, sd=cv * np.sqrt(tau / n), tau=tau)


def two_speeds(rng: Rng, n: int, *, stay: float = 0.0, share: float = 0.3) -> Durations:
    """A `share` of the records is 1.25 times as long; `stay` is the autocorrelation of that."""
    slow = np.zeros(n, dtype=bool)
    slow[0] = rng.random() < share
    renewed, fresh = rng.random(n) >= stay, rng.random(n) < share
    for index in range(1, n):
        slow[index] = fresh[index] if renewed[index] else slow[index - 1]
    values = (1 + 0.25 * slow) * white(rng, n, cv=0.01).values
    mean, tau = 1 + 0.25 * share, (1 + stay) / (1 - stay)
    sd = 0.25 * np.sqrt(share * (1 - share) * tau / n)
    return Durations(values=values, mean=mean, sd=sd / mean, tau=tau)


def periodic_pauses(rng: Rng, n: int, *, period: int, times: float = 3.0) -> Durations:
    """Every `period`-th record is `times` as long: an undeclared pause."""
    values = white(rng, n, cv=0.01).values
    values[int(rng.integers(period)) :: period] *= times
    return Durations(values=values, mean=1 + (times - 1) / period, sd=0.01 / np.sqrt(n))


def random_pauses(rng: Rng, n: int, *, share: float = 0.05, times: float = 3.0) -> Durations:
    """A random `share` of the records is `times` as long."""
    hit = rng.random(n) < share
    values = white(rng, n, cv=0.01).values * np.where(hit, times, 1.0)
    mean = 1 + (times - 1) * share
    sd = (times - 1) * np.sqrt(share * (1 - share) / n) / mean
    return Durations(values=values, mean=mean, sd=sd)


def throttled(rng: Rng, n: int, *, begin: float = 0.7, times: float = 1.2) -> Durations:
    """Records are `times` as long from a share `begin` of the run on."""
    values = white(rng, n, cv=0.01).values
    values[int(begin * n) :] *= times
    mean = begin + times * (1 - begin)
    return Durations(values=values, mean=mean, sd=0.01 / np.sqrt(n), lasting=True)


def drifting(rng: Rng, n: int, *, by: float = 0.1) -> Durations:
    """Records become longer by the share `by` from the first to the last."""
    values = white(rng, n, cv=0.01).values * np.linspace(1, 1 + by, n)
    return Durations(values=values, mean=1 + by / 2, sd=0.01 / np.sqrt(n), lasting=True)


def cyclic(rng: Rng, n: int, *, period: float, by: float = 0.1) -> Durations:
    """Durations that swing by `by` to either side with a period of so many records.

    Fewer than eight cycles do not show that the swing comes again: then it counts as lasting.
    """
    phase = rng.uniform(0, 2 * np.pi)
    swing = 1 + by * np.sin(2 * np.pi * np.arange(n) / period + phase)
    return Durations(
        values=white(rng, n, cv=0.01).values * swing,
        mean=1.0,
        sd=by * period / n / np.pi,
        lasting=n < 8 * period,
    )


def heavy_tails(rng: Rng, n: int, *, freedom: float = 3.0, scale: float = 0.02) -> Durations:
    """Durations with the tails of Student's t (mean 1, never below a half)."""
    noise = np.clip(scale * rng.standard_t(freedom, n), -0.5, 0.5)
    sd = scale * np.sqrt(freedom / (freedom - 2) / n)
    return Durations(values=1 + noise, mean=1.0, sd=sd)


def pareto(rng: Rng, n: int, *, share: float = 0.2) -> Durations:
    """Durations of mean 1 with a Pareto tail of index 3 above their least value."""
    tail = rng.pareto(3.0, n)  # mean 1/2, variance 3/4
    values = (1 + share * tail) / (1 + share / 2)
    return Durations(values=values, mean=1.0, sd=share * np.sqrt(0.75 / n))


def falling_loss(steps: Floats, *, level: float = 0.2) -> Floats:
    """Return a loss [n] that falls towards `level` as a power of the step."""
    return level * (1 + 4 / np.sqrt(1 + steps / 20))


def wandering(rng: Rng, n: int, *, sd: float, correlation: float = 50.0) -> Floats:
    """Return noise of logs [n] that wanders with a correlation of so many records."""
    return sd * correlated(rng, n, float(np.exp(-1 / correlation)))


def averaged(values: Floats, *, decay: float) -> Floats:
    """Return the exponential moving average [n] of a series, as some trainers log it."""
    return np.asarray(lfilter([1 - decay], [1, -decay], values, zi=[decay * values[0]])[0])
