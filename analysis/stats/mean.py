"""The mean of a noisy, autocorrelated series with its error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from analysis.stats.intervals import Estimate, Floats

SOKAL_WINDOW = 5.0
# Fewer values have a mean, but no interval.
MIN_VALUES = 10
# An interval never counts on more than is sure: a series has at least so many independent values.
FEWEST_EFFECTIVE = 2.0
# Standard errors that the estimated lag-1 autocorrelation is raised by: an interval that is too
# wide costs some power, one that is too narrow is wrong.
CAUTION = 0.25
# So many squared standard errors from none an autocorrelation counts half.
UNSURE = 0.5
# The degrees of freedom of a scatter that is known.
CERTAIN = 1e6
# An error that is a larger share of its mean counts as this one for the logarithm.
LARGEST_SHARE = 0.99


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean with its standard error, and the degrees of freedom of that; no error: no interval."""

    value: float
    error: float | None = None
    freedom: float = 1.0

    def estimate(self) -> Estimate:
        """Return the mean with Student's 95 % interval."""
        if self.error is None:
            return Estimate(value=self.value)
        half = self.half_width
        return Estimate(value=self.value, low=self.value - half, high=self.value + half)

    def ratio(self) -> Estimate:
        """Return the ratio, with its interval, that this is the logarithm of."""
        return self.estimate().map(math.exp)

    def allowing(self, scatter: float, *, freedom: float = CERTAIN) -> "Mean":
        """Return the mean with the error of two runs, nodes or seeds beside its own.

        `scatter` is the standard deviation of each, with its degrees of freedom.
        """
        assert self.error is not None
        parts = self.error**2, 2 * scatter**2
        return satterthwaite(self.value, parts, (self.freedom, freedom))

    def is_within(self, margin: float) -> bool:
        """Whether the interval of this log ratio is within a margin of 1."""
        ends = self.estimate()
        return (
            ends.low is not None
            and ends.high is not None
            and max(-ends.low, ends.high) <= math.log1p(margin)
        )

    def logarithm(self) -> "Mean":
        """Return the logarithm of a positive mean.

        One pause of an hour may be nearly all of a mean and of its error. Were that error, a share
        below 1, taken for the logarithm's, the pause alone would make a run slower for certain.
        """
        if self.error is None:
            return replace(self, value=math.log(self.value))
        share = min(self.error / self.value, LARGEST_SHARE)
        return replace(self, value=math.log(self.value), error=max(share, -math.log1p(-(share**2))))

    @property
    def half_width(self) -> float:
        """Half the width of Student's 95 % interval, without end if there is no error."""
        return math.inf if self.error is None else float(stdtrit(self.freedom, 0.975)) * self.error

    def widened(self, by: float) -> "Mean":
        """Return the mean with an interval that reaches `by` further on both sides."""
        if self.error is None or by == 0:
            return self
        return replace(self, error=self.error + by / float(stdtrit(self.freedom, 0.975)))

    def p_value(self) -> float:
        """Return the probability of a mean so far from 0 if the true one is 0."""
        if self.error is None:
            return 1.0
        if self.error == 0:
            return float(self.value == 0)
        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))


def satterthwaite(value: float, parts: Sequence[float], freedom: Sequence[float]) -> Mean:
    """Return a mean whose variance is a sum of `parts` that are known with so much `freedom`."""
    squares = sum(part**2 / own for part, own in zip(parts, freedom, strict=True))
    whole = sum(parts) ** 2 / squares if squares > 0 else sum(freedom)
    return Mean(value=value, error=math.sqrt(sum(parts)), freedom=whole)


def autocorrelation_time(series: Floats, *, fitted: int = 1) -> float:
    """Return the number of values that count as one: 1 + 2 (sum of autocorrelations), at least 1.

    The sum stops at the first lag that exceeds `SOKAL_WINDOW` times the running result (Sokal
    1997, "Monte Carlo methods in statistical mechanics", section 3). Each of the `fitted`
    coefficients removed from the series (usually the mean alone) lowers every lag by about
    result/n; the result corrects for that.
    """
    n = len(series)
    centred = series - series.mean()
    spectrum = np.fft.rfft(centred, 1 << (2 * n - 1).bit_length())
    covariance = np.fft.irfft(np.abs(spectrum) ** 2)[:n]
    if covariance[0] <= 0:
        return 1.0
    running = 2 * np.cumsum(covariance / covariance[0]) - 1
    beyond = np.arange(n) >= SOKAL_WINDOW * running
    window = int(np.argmax(beyond)) if beyond.any() else n - 1
    lags = fitted * (2 * window + 1)
    if lags >= n:
        return float(n)
    return max(1.0, float(running[window]) / (1 - lags / n))


def lag_one(series: Floats) -> float:
    """Return the autocorrelation at lag 1, corrected for its bias (Marriott and Pope 1954)."""
    n, centred = len(series), series - series.mean()
    variance = float(centred @ centred)
    if variance <= 0:
        return 0.0
    lag = float(centred[1:] @ centred[:-1]) / variance
    return lag + (1 + 3 * lag) / n


def lag_one_time(series: Floats) -> float:
    """Return the autocorrelation time of a first-order autoregression with the series' lag 1.

    It is raised by `CAUTION` standard errors: for short series the sum over lags is too short.
    """
    lag = lag_one(series) + CAUTION / math.sqrt(len(series))
    return (1 + lag) / (1 - lag) if -1 < lag < 1 else float(len(series)) if lag >= 1 else 1.0


def independent(noise: Floats, *, fitted: int = 1) -> tuple[float, float]:
    """Return the variance of a value of a series, and how many independent values it counts as.

    `noise` is the series about its `fitted` coefficients; about those of few independent values it
    scatters less. An autocorrelation that may be none counts less: a short white series would lose
    half of its values to it.
    """
    n, squares = len(noise), len(noise) * max(0.0, lag_one(noise)) ** 2
    time = max(1.0, autocorrelation_time(noise, fitted=fitted), lag_one_time(noise))
    time = 1 + (time - 1) * squares / (squares + UNSURE)
    effective = max(n / time, FEWEST_EFFECTIVE)
    return float(noise @ noise) / n / max(1 - fitted / effective, 0.5), effective


def weighted(series: Floats, weights: Floats) -> Floats:
    """Return values [n] whose mean is the weighted one, and whose scatter gives its error.

    They are linear in what each value adds to the mean (a ratio of sums) beside its weight.
    """
    if (weights == weights[:1]).all():
        return series
    mean = float(np.average(series, weights=weights))
    return mean + (series - mean) * weights / float(weights.mean())


def mean_of(series: Floats) -> Mean:
    """Return the mean of a series of autocorrelated values, without an error for fewer than ten."""
    mean = float(series.mean())
    if len(series) < MIN_VALUES:
        return Mean(value=mean)
    variance, effective = independent(series - mean)
    error = math.sqrt(variance / effective)
    return Mean(value=mean, error=error, freedom=max(effective - 1, 1.0))


def trend(series: Floats, *, terms: int) -> Floats:
    """Return the least-squares trend [n] in the first of 1, t, t^2 and log t."""
    t = np.arange(1, len(series) + 1) / len(series)
    basis = np.stack([np.ones(len(series)), t, t**2, np.log(t)][:terms], axis=1)
    return np.asarray(basis @ np.linalg.lstsq(basis, series, rcond=None)[0])
