"""Intervals for noisy, autocorrelated series: of a median, of a mean, and of a ratio."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

SOKAL_WINDOW = 5.0
MIN_VALUES = 10
# How many terms of the trend are taken out of how many values: each widens the interval.
TREND_TERMS = ((100, 4), (30, 2), (0, 1))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval; no interval where there is too little to say one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_determined(self) -> bool:
        """Whether it has an interval."""
        return self.low is not None


def autocorrelation_time(series: Floats, *, fitted: int = 1) -> float:
    """How many values in a row count as one: 1 + 2 (sum of the autocorrelations), at least 1.

    The sum stops at the first lag that exceeds `SOKAL_WINDOW` times the running result (Sokal
    1997, "Monte Carlo methods in statistical mechanics", section 3). Each of the `fitted`
    coefficients taken out of the series (its mean, most often) lowers every lag by about
    result/n, which is put back.
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


def median_interval(series: Floats, *, wider: float = 1.0) -> Estimate:
    """The median and its interval by order statistics, widened by the autocorrelation.

    Ranks n/2 +- t sqrt(n tau) / 2, where tau is the autocorrelation time of being above the
    median: no shape of the distribution is assumed. Of a series that wanders so much that few
    of its values are independent the interval is its whole range. It is `wider` than that of a
    whole series where the series has been cut.
    """
    middle = float(np.median(series))
    if len(series) < MIN_VALUES:
        return Estimate(value=middle)
    effective = len(series) / autocorrelation_time((series > middle).astype(np.float64))
    half = wider * _student(effective) / math.sqrt(effective) / 2
    low, high = np.quantile(series, [max(0.0, 0.5 - half), min(1.0, 0.5 + half)])
    return Estimate(value=middle, low=float(low), high=float(high))


def mean_interval(series: Floats) -> Estimate:
    """The mean of a series that may drift smoothly, with Student's interval from its noise.

    Noise is what scatters about a trend in 1, t, t^2 and log t (a constant gap, a gap that grows,
    and one that shrinks as a loss does; the first terms only where values are few): a drift of
    the series is not mistaken for noise.
    """
    n, mean = len(series), float(series.mean())
    if n < MIN_VALUES:
        return Estimate(value=mean)
    t = np.arange(1, n + 1) / n
    terms = next(terms for least, terms in TREND_TERMS if n >= least)
    powers = [np.ones(n), t, t**2, np.log(t)][:terms]
    trend = np.stack(powers, axis=1)
    noise = series - trend @ np.linalg.lstsq(trend, series, rcond=None)[0]
    effective = n / autocorrelation_time(noise, fitted=len(powers))
    deviation = math.sqrt(float((noise**2).sum()) / (n - len(powers)))
    half = _student(effective) * deviation / math.sqrt(effective)
    return Estimate(value=mean, low=mean - half, high=mean + half)


def _student(effective: float) -> float:
    """The 97.5 % quantile for so many independent values, at least two."""
    return float(stdtrit(max(effective - 1, 1.0), 0.975))


def ratio_interval(above: Estimate, below: Estimate) -> Estimate:
    """The interval of the ratio of two independent positive estimates.

    Their intervals on the log scale are combined by squares, each side with the side that
    matters (Zou and Donner 2008, "method of variance estimates recovery").
    """
    value = above.value / below.value
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(value=value)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Estimate(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate times a known positive number."""
    return Estimate(
        value=estimate.value * factor,
        low=None if estimate.low is None else estimate.low * factor,
        high=None if estimate.high is None else estimate.high * factor,
    )


def repeats_ratio(above: Floats, below: Floats) -> Estimate:
    """The ratio of two arms of repeated runs, from the scatter between the runs.

    Student's t on the logs with one variance for both arms; one arm may be a single run.
    """
    a, b = np.log(above), np.log(below)
    difference = float(a.mean() - b.mean())
    freedom = len(a) + len(b) - 2
    if freedom < 1:
        return Estimate(value=math.exp(difference))
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    error = math.sqrt(squares / freedom * (1 / len(a) + 1 / len(b)))
    half = float(stdtrit(freedom, 0.975)) * error
    return Estimate(
        value=math.exp(difference),
        low=math.exp(difference - half),
        high=math.exp(difference + half),
    )


def repeats_mean(values: Floats) -> Estimate:
    """The geometric mean of repeated runs, with Student's interval from their scatter."""
    logs = np.log(values)
    middle, n = float(logs.mean()), len(logs)
    half = float(stdtrit(n - 1, 0.975)) * float(logs.std(ddof=1)) / math.sqrt(n)
    return Estimate(
        value=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half)
    )
