"""Confidence intervals of medians, means and ratios of noisy, autocorrelated series."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, stdtrit

Floats = NDArray[np.float64]

SOKAL_WINDOW = 5.0
MIN_VALUES = 10
# From this many values on, a single one at either end never decides an interval.
MIN_TRIMMED = 20
# (least values, terms of the trend that are removed): each term widens the interval.
TREND_TERMS = ((100, 4), (30, 2), (0, 1))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval, which is None if there are too few data for one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_determined(self) -> bool:
        """Whether the estimate has an interval."""
        return self.low is not None

    def map(self, function: Callable[[float], float]) -> "Estimate":
        """Return an increasing function of the estimate and of the ends of its interval."""
        low, high = (None if end is None else function(end) for end in (self.low, self.high))
        return Estimate(value=function(self.value), low=low, high=high)


def estimate_fields(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return `name`, `name_low` and `name_high` as fields of a row; None if unknown."""
    found = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


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


def median_interval(series: Floats, *, wider: float = 1.0) -> Estimate:
    """Return the median and its interval by order statistics, widened for autocorrelation.

    The ranks are n/2 +- t sqrt(n tau) / 2, with tau the autocorrelation time of being above the
    median, so no shape of the distribution is assumed. The interval is the whole range, but for one
    value at either end of a long series, if the series drifts so much that few of its values are
    independent. `wider` scales the interval of a series from which values have been cut.
    """
    median = float(np.median(series))
    if len(series) < MIN_VALUES:
        return Estimate(value=median)
    effective = len(series) / autocorrelation_time((series > median).astype(np.float64))
    half = wider * _student(effective) / math.sqrt(effective) / 2
    edge = 1 / (len(series) - 1) if len(series) >= MIN_TRIMMED else 0.0
    low, high = np.quantile(series, [max(edge, 0.5 - half), min(1 - edge, 0.5 + half)])
    return Estimate(value=median, low=float(low), high=float(high))


def mean_interval(series: Floats) -> Estimate:
    """Return the mean of a series that may drift smoothly, with Student's interval from its noise.

    Noise is the scatter about a trend in 1, t, t^2 and log t (a constant difference, one that
    grows, and one that shrinks as a loss does), so that drift does not count as noise. Short series
    use the first terms only.
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
    return _within(mean, half)


def _student(effective: float) -> float:
    """Return Student's 97.5 % quantile for `effective` independent values, at least two."""
    return float(stdtrit(max(effective - 1, 1.0), 0.975))


def _within(value: float, half: float) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half)


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


def ratio_interval(above: Estimate, below: Estimate) -> Estimate:
    """Return the ratio of two independent positive estimates, with its interval.

    On the log scale the distances to opposite ends of the two intervals add in squares (Zou and
    Donner 2008, "method of variance estimates recovery").
    """
    value = above.value / below.value
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Estimate(value=value)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Estimate(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def widened(estimate: Estimate, by: float) -> Estimate:
    """Return an estimate whose interval reaches `by` further on both sides."""
    low, high = estimate.low, estimate.high
    return Estimate(
        value=estimate.value,
        low=None if low is None else low - by,
        high=None if high is None else high + by,
    )


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate times a known positive number."""
    return estimate.map(lambda value: value * factor)


def repeats_ratio(above: Floats, below: Floats) -> Estimate:
    """Return the ratio of two arms of repeated runs, from the scatter between the runs.

    The interval is Student's t on the logs with one variance for both arms. One arm may be a
    single run.
    """
    a, b = np.log(above), np.log(below)
    difference = float(a.mean() - b.mean())
    freedom = len(a) + len(b) - 2
    if freedom < 1:
        return Estimate(value=math.exp(difference))
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    error = math.sqrt(squares / freedom * (1 / len(a) + 1 / len(b)))
    half = float(stdtrit(freedom, 0.975)) * error
    return _within(difference, half).map(math.exp)


def repeats_mean(values: Floats) -> Estimate:
    """Return the geometric mean of repeated runs, with Student's interval from their scatter."""
    return geometric_mean(np.log(values))


def geometric_mean(logs: Floats) -> Estimate:
    """Return exp of the mean of two or more `logs`, with Student's interval from their scatter."""
    mean, n = float(logs.mean()), len(logs)
    half = float(stdtrit(n - 1, 0.975)) * float(logs.std(ddof=1)) / math.sqrt(n)
    return _within(mean, half).map(math.exp)


@dataclass(frozen=True, kw_only=True)
class PairedRatio:
    """A ratio over `rounds` in which both arms were measured, by their differences in each.

    `narrower` is the width of the interval from the same values unpaired over its own (of logs).
    """

    ratio: Estimate
    rounds: int
    narrower: float


def paired_ratio(
    above: Mapping[str, float], below: Mapping[str, float], *, fewest: int
) -> PairedRatio | None:
    """Return the ratio of two arms from logs by round, with Student's interval over the rounds.

    What both arms of a round share, such as the speed of their node, cancels. Return None if fewer
    than `fewest` rounds have both.
    """
    rounds = [name for name in above if name in below]
    if len(rounds) < fewest:
        return None
    a, b = (np.array([arm[name] for name in rounds]) for arm in (above, below))
    paired, unpaired = geometric_mean(a - b), repeats_ratio(np.exp(a), np.exp(b))
    narrower = _log_width(unpaired) / _log_width(paired)
    return PairedRatio(ratio=paired, rounds=len(rounds), narrower=narrower)


def _log_width(found: Estimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return max(math.log(found.high / found.low), 1e-12)


def blocks_mean(values: Floats) -> Estimate:
    """Return the mean of `[runs, blocks]`, with Student's interval from the scatter of blocks."""
    runs, blocks = values.shape
    error = math.sqrt(float(values.var(axis=1, ddof=1).sum()) / blocks) / runs
    return _within(float(values.mean()), float(stdtrit(runs * (blocks - 1), 0.975)) * error)


def seeds_needed(arms: Sequence[Floats], *, ratio: float) -> int | None:
    """Return the seeds of each of two arms that show a true `ratio` in 80 % of studies.

    Student's test takes the pooled variance of `arms`, logs of earlier runs. Return None if a
    thousand are too few.
    """
    scatter = np.concatenate([arm - arm.mean() for arm in arms])
    variance = float((scatter**2).sum()) / (len(scatter) - len(arms))
    n = np.arange(2, 1001)
    shift = np.minimum(abs(math.log(ratio)) * np.sqrt(n / max(2 * variance, 1e-30)), 30.0)
    enough = nctdtr(2 * n - 2, shift, stdtrit(2 * n - 2, 0.975)) <= 0.2
    return int(n[enough.argmax()]) if enough.any() else None
