"""Summarise a noisy, autocorrelated series: cut the warm-up and take the mean of the rest."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
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
# How alike a periodic series is after a period (as an autocorrelation), and its shortest period.
PERIODIC, SHORTEST_PERIOD = 0.85, 4
# Warm-up: a segment shorter than MIN_SEGMENT has none, a step needs MIN_STRENGTH deviations, and
# 1/GUARD of the cut is added to it as a margin.
MIN_SEGMENT, MIN_STRENGTH, CLIP, GUARD = 10, 4.0, 10.0, 4
MAX_WARMUP_SHARE = 0.4
# A head of at least so many intervals is no warm-up if it comes again over (at most) so many.
FEWEST_RECURRING, RECURRING = 3, 8
MAX_AUTOCORRELATION = 2.0
# One or two intervals, fewer than 5 % of all, are set aside if they are so many times the median.
ISOLATED_TIMES, MOST_ISOLATED, ISOLATED_SHARE = 6.0, 2, 0.05
# Steps over so many times the median count as slow; their share of the time is told.
SLOW_TIMES = 2.0
# A lasting change of speed: deviations and size that it needs, and the least part on either side.
CHANGE_STRENGTH, CHANGE_SIZE, CHANGE_EDGE = 6.0, 0.04, 10
CHANGE_WINDOW, CHANGE_CLIP = 9, 3.0
# The autocorrelation time of a series that has two levels and does not wander.
STEADY_TIME = 2.0
SIGMA_OF_MAD = 1.4826


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


def lag_one_time(series: Floats) -> float:
    """Return the autocorrelation time of a first-order autoregression with the series' lag 1.

    The estimate is corrected for its bias (Marriott and Pope 1954) and raised by `CAUTION` standard
    errors: for short series the sum over lags is too short.
    """
    n, centred = len(series), series - series.mean()
    variance = float(centred @ centred)
    if variance <= 0:
        return 1.0
    lag = float(centred[1:] @ centred[:-1]) / variance
    lag += (1 + 3 * lag) / n + CAUTION / math.sqrt(n)
    return (1 + lag) / (1 - lag) if lag < 1 else float(n) if lag >= 1 else 1.0


def effective_number(noise: Floats, *, fitted: int = 1) -> float:
    """Return how many independent values a series counts as, for the error of its mean."""
    time = max(1.0, autocorrelation_time(noise, fitted=fitted), lag_one_time(noise))
    return max(len(noise) / time, FEWEST_EFFECTIVE)


def mean_of(series: Floats, *, trend_terms: int = 1) -> Mean:
    """Return the mean of a series of autocorrelated values, without an error for fewer than ten.

    With more `trend_terms` its noise is the scatter about a trend in 1, t, t^2 and log t, so that a
    smooth drift does not count as noise.
    """
    n, mean = len(series), float(series.mean())
    if n < MIN_VALUES:
        return Mean(value=mean)
    if trend_terms == 1 and (period := period_of(series)):
        return _mean_of_cycles(series, period)
    noise = series - trend(series, terms=trend_terms)
    effective = effective_number(noise, fitted=trend_terms)
    variance = float(noise @ noise) / max(n - trend_terms, 1)
    # The scatter about a mean that few independent values determine is too small by this factor.
    variance /= max(1 - 1 / effective, 0.5)
    error = math.sqrt(variance / effective)
    return Mean(value=mean, error=error, freedom=max(effective - 1, 1.0))


def period_of(series: Floats) -> int | None:
    """Return the period of a series that repeats itself, as by a save at each tenth record.

    It has to be as alike after a period as `PERIODIC` says, and unlike after half of one, so that a
    slow change is no period.
    """
    n, centred = len(series), series - series.mean()
    power = np.abs(np.fft.rfft(centred, 1 << (2 * n - 1).bit_length())) ** 2
    covariance = np.fft.irfft(power)[:n] / (n - np.arange(n))
    if covariance[0] <= 0 or n < 3 * SHORTEST_PERIOD:
        return None
    alike = covariance / covariance[0]
    lags = np.arange(SHORTEST_PERIOD, n // 3 + 1)
    found = lags[alike[lags] > PERIODIC]
    if not len(found):
        return None
    # The first such lag climbs to the peak.
    period = int(found[0])
    while period < n // 3 and alike[period + 1] > alike[period]:
        period += 1
    return period if alike[period // 2] < 1 - PERIODIC else None


def _mean_of_cycles(series: Floats, period: int) -> Mean:
    """Return the mean over whole periods, with an error from the scatter about the period.

    Where a series begins and ends within a period adds to its error, as a uniform deviation does.
    """
    cycle, noise = _cycle_and_noise(series, period)
    freedom = len(series) - period
    error = math.sqrt(float(noise @ noise) / freedom / effective_number(noise))
    edge = float(np.ptp(np.cumsum(cycle - cycle.mean()))) / len(series) / math.sqrt(12)
    return Mean(value=float(cycle.mean()), error=math.hypot(error, edge), freedom=float(freedom))


def _cycle_and_noise(series: Floats, period: int) -> tuple[Floats, Floats]:
    """Return the mean at each place of the period, and the series [n] about that."""
    phase = np.arange(len(series)) % period
    cycle = np.array([series[phase == place].mean() for place in range(period)])
    return cycle, series - cycle[phase]


def trend(series: Floats, *, terms: int) -> Floats:
    """Return the least-squares trend [n] in the first of 1, t, t^2 and log t."""
    t = np.arange(1, len(series) + 1) / len(series)
    basis = np.stack([np.ones(len(series)), t, t**2, np.log(t)][:terms], axis=1)
    return np.asarray(basis @ np.linalg.lstsq(basis, series, rcond=None)[0])


def ratio_of_means(above: Floats, below: Floats) -> Mean:
    """Return the log of the ratio of the means of two series [n] whose values belong together.

    Its error is that of the mean of above/mean(above) - below/mean(below), in which what both share
    cancels, such as a pause at the same step. A lasting change of that is what these two series
    did, not noise. The mean of a periodic series is over whole periods.
    """
    (a, above), (b, below) = map(_without_period, (above, below))
    gap = above / a - below / b
    if (change := lasting_change(gap)) is not None:
        sides = gap[: change.index], gap[change.index :]
        rest = np.concatenate([side - side.mean() for side in sides])
        # What still wanders on either side may change again.
        gap = rest if lag_one_time(rest) < STEADY_TIME else gap
    found = mean_of(gap)
    return Mean(value=math.log(a / b), error=found.error, freedom=found.freedom)


def _without_period(series: Floats) -> tuple[float, Floats]:
    """Return the mean over whole periods, and the series [n] without what comes each period.

    What is left is scaled up for the values of the period that were fitted to it.
    """
    period = period_of(series)
    if period is None:
        return float(series.mean()), series
    cycle, noise = _cycle_and_noise(series, period)
    n, mean = len(series), float(cycle.mean())
    return mean, mean + noise * math.sqrt(n / (n - period))


@dataclass(frozen=True, kw_only=True)
class Change:
    """A lasting change of a series: the values from `index` on are `ratio` times the others."""

    index: int
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The mean duration of the steps of a run after warm-up, and what it is taken over.

    `kept` [n] are the intervals that count, `isolated` of the others stand alone. `slow_share` is
    the share of the time that intervals over `SLOW_TIMES` the median take. `change` is a lasting
    change of speed, whose index is one of the n intervals.
    """

    mean: Mean
    kept: NDArray[np.bool_]
    warmup: int
    isolated: int
    slow_share: float
    change: Change | None

    @property
    def seconds(self) -> Estimate:
        """The mean seconds of a unit with their interval."""
        return self.mean.estimate()


def summarise(seconds: Floats, segment: NDArray[np.int64]) -> Summary:
    """Return the mean of `seconds` (per step, in order) after the warm-up of each segment.

    A segment is an attempt. Slow intervals count, since the run did spend that time; only one or
    two isolated ones far from all others are set aside.
    """
    kept = np.ones(len(seconds), dtype=bool)
    for number in np.unique(segment):
        rows = np.flatnonzero(segment == number)
        kept[rows[: warmup_end(seconds[rows])]] = False
    warm = int((~kept).sum())
    rows = np.flatnonzero(kept)
    kept[rows[is_isolated(seconds[rows])]] = False
    counted = seconds[kept]
    median = float(np.median(counted))
    change = lasting_change(np.log(counted))
    if change is not None:
        change = Change(index=int(np.flatnonzero(kept)[change.index]), ratio=change.ratio)
    return Summary(
        mean=mean_of(counted),
        kept=kept,
        warmup=warm,
        isolated=int((~kept).sum()) - warm,
        slow_share=float(counted[counted > SLOW_TIMES * median].sum() / counted.sum()),
        change=change,
    )


def is_isolated(seconds: Floats) -> NDArray[np.bool_]:
    """Return which intervals are one or two that differ from all others by a large factor."""
    times = seconds / float(np.median(seconds))
    far = (times > ISOLATED_TIMES) | (times < 1 / ISOLATED_TIMES)
    few = far.sum() <= min(MOST_ISOLATED, ISOLATED_SHARE * len(far))
    return np.asarray(far & few)


def warmup_end(seconds: Floats) -> int:
    """Return how many leading intervals are slower than the steady ones.

    The second half defines the steady state. Logs, clipped at `CLIP` robust deviations so that
    outliers weigh little, are searched for the most significant step (a CUSUM against the
    long-run deviation). Everything before it is cut, and the search repeats until no step is
    left, so a compile, a slower plateau and a ramp are each found. At most `MAX_WARMUP_SHARE` of
    the intervals are cut.
    """
    n = len(seconds)
    if n < MIN_SEGMENT:
        return 0
    logs = np.log(seconds)
    median, sigma = robust(logs[n // 2 :])
    scores = np.clip((logs - median) / sigma, -CLIP, CLIP) if sigma else np.sign(logs - median)
    tail = scores[n // 2 :]
    above = (tail > np.median(tail)).astype(np.float64)
    correlation = min(autocorrelation_time(above), MAX_AUTOCORRELATION)
    deviation = max(float(tail.std()), 0.5) * correlation**0.5
    cut, most = 0, int(MAX_WARMUP_SHARE * n)
    while (more := _slow_head(scores[cut:], most - cut, deviation)) > 0:
        cut += more
    if _recurs(logs[:cut], logs[cut:], sigma):
        return 0
    return min(cut + cut // GUARD, most)


def _recurs(head: Floats, rest: Floats, sigma: float) -> bool:
    """Return whether a later stretch is as slow as the head, which then is no warm-up."""
    width = min(len(head), RECURRING)
    if width < FEWEST_RECURRING:
        return False
    levels = np.median(np.lib.stride_tricks.sliding_window_view(rest, width), axis=1)
    return bool(levels.max() > float(np.median(head)) - sigma)


def _slow_head(scores: Floats, most: int, deviation: float) -> int:
    """Return the length, up to `most`, of the most significantly slow head; 0 if there is none."""
    if most < 1:
        return 0
    n = len(scores)
    heads = np.arange(1, most + 1)
    sums = np.cumsum(scores)
    step = sums[: len(heads)] / heads - (sums[-1] - sums[: len(heads)]) / (n - heads)
    strength = step * np.sqrt(heads * (n - heads) / n) / deviation
    best = int(np.argmax(strength))
    return int(heads[best]) if strength[best] > MIN_STRENGTH else 0


def lasting_change(logs: Floats) -> Change | None:
    """Return the strongest lasting change of the level of `logs` [n], if there is one.

    It is searched in running medians, in which single pauses do not count. Its error is by the
    scatter and the autocorrelation that are left on both sides of it.
    """
    n = len(logs)
    edge = max(CHANGE_EDGE, n // 20)
    if n < 3 * CHANGE_EDGE:
        return None
    padded = np.pad(logs, CHANGE_WINDOW // 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, CHANGE_WINDOW)
    sums = np.cumsum(np.median(windows, axis=1))
    heads = np.arange(edge, n - edge)
    change = (sums[-1] - sums[heads - 1]) / (n - heads) - sums[heads - 1] / heads
    cut = int(heads[np.argmax(np.abs(change) * np.sqrt(heads * (n - heads)))])
    sides = logs[:cut], logs[cut:]
    before, after = (float(np.median(side)) for side in sides)
    rest = np.concatenate([sides[0] - before, sides[1] - after])
    _, sigma = robust(rest)
    if sigma:
        rest = np.clip(rest, -CHANGE_CLIP * sigma, CHANGE_CLIP * sigma)
    time = max(autocorrelation_time(rest, fitted=2), lag_one_time(rest))
    error = float(rest.std()) * (time * n / (cut * (n - cut))) ** 0.5
    size = abs(after - before)
    is_lasting = size > CHANGE_SIZE and size > CHANGE_STRENGTH * error
    return Change(index=cut, ratio=math.exp(after - before)) if is_lasting else None


def robust(values: Floats) -> tuple[float, float]:
    """Return the median, and the standard deviation by the median absolute deviation."""
    median = float(np.median(values))
    return median, SIGMA_OF_MAD * float(np.median(np.abs(values - median)))
