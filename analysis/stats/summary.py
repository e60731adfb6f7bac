"""Summarise the durations of steps: cut the warm-up, keep what counts, take the mean of it."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.mean import (
    Mean,
    autocorrelation_time,
    lag_one_time,
    mean_of,
    weighted,
)

# Warm-up: a segment shorter than MIN_SEGMENT has none, a step needs MIN_STRENGTH deviations, and
# 1/GUARD of the cut is added to it as a margin.
MIN_SEGMENT, MIN_STRENGTH, CLIP, GUARD = 10, 4.0, 10.0, 4
MAX_WARMUP_SHARE = 0.4
# A head of at least so many intervals is no warm-up if it comes again over (at most) so many.
FEWEST_RECURRING, RECURRING = 3, 8
MAX_AUTOCORRELATION = 2.0
# Steps over so many times the median count as slow; their share of the time is told.
SLOW_TIMES = 2.0
# A lasting change of speed: deviations and size that it needs, and the least part on either side.
CHANGE_STRENGTH, CHANGE_SIZE, CHANGE_EDGE = 6.0, 0.04, 10
CHANGE_WINDOW = 9
# The quantiles that clip it: pauses make values long, and seldom one short.
CHANGE_CLIP = (0.05, 0.85)
SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class Change:
    """A lasting change of a series: the values from `index` on are `ratio` times the others."""

    index: int
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The mean duration of the steps of a run after warm-up, and what it is taken over.

    `kept` [n] are the intervals that count. `slow_share` is the share of the time that intervals
    over `SLOW_TIMES` the median take. `change` is a lasting change of speed, whose index is one of
    the n intervals. In a run `is_in_pieces` no attempt is long enough to cut its warm-up.
    """

    mean: Mean
    kept: NDArray[np.bool_]
    warmup: int
    slow_share: float
    change: Change | None
    is_in_pieces: bool

    @property
    def seconds(self) -> Estimate:
        """The mean seconds of a unit with their interval."""
        return self.mean.estimate()


def summarise(seconds: Floats, segment: NDArray[np.int64], *, steps: Floats) -> Summary:
    """Return the mean of `seconds` (per step, in order) after the warm-up of each segment.

    Each value counts by the number of its `steps`, so that the mean is all seconds over all steps.
    A segment is an attempt. One too short to show its warm-up does not count beside longer ones.
    Slow intervals count, since the run did spend that time.
    """
    kept = np.ones(len(seconds), dtype=bool)
    segments = [np.flatnonzero(segment == number) for number in np.unique(segment)]
    longest = max(map(len, segments))
    for rows in segments:
        is_short = len(rows) < MIN_SEGMENT <= longest
        kept[rows if is_short else rows[: warmup_end(seconds[rows])]] = False
    counted, weights = seconds[kept], steps[kept]
    spent = counted * weights
    median = float(np.median(counted))
    change = lasting_change(np.log(counted))
    if change is not None:
        change = Change(index=int(np.flatnonzero(kept)[change.index]), ratio=change.ratio)
    return Summary(
        mean=mean_of(weighted(counted, weights)),
        kept=kept,
        warmup=int((~kept).sum()),
        slow_share=float(spent[counted > SLOW_TIMES * median].sum() / spent.sum()),
        change=change,
        is_in_pieces=len(segments) > 1 and longest < MIN_SEGMENT,
    )


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


def ratio_of_means(above: Floats, below: Floats, *, weights: Floats) -> Mean:
    """Return the log of the ratio of the means of two series [n] whose values belong together.

    Each pair of values counts by its weight [n].
    Its error is the error of the mean of above/mean(above) - below/mean(below), in which what both
    share cancels, such as a pause at the same step.
    """
    above, below = weighted(above, weights), weighted(below, weights)
    a, b = float(above.mean()), float(below.mean())
    gap = above / a - below / b
    found = replace(mean_of(gap), value=1.0).logarithm()
    return replace(found, value=math.log(a / b))


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
    medians = np.repeat([np.median(side) for side in sides], [cut, n - cut])
    rest = logs - medians
    rest = np.clip(rest, *np.quantile(rest, CHANGE_CLIP))
    # Where two levels alternate, a median jumps from one to the other for a handful of values.
    before, after = (float(side.mean()) for side in np.split(medians + rest, [cut]))
    rest = medians + rest - np.repeat([before, after], [cut, n - cut])
    time = max(autocorrelation_time(rest, fitted=2), lag_one_time(rest))
    error = float(rest.std()) * (time * n / (cut * (n - cut))) ** 0.5
    size = abs(after - before)
    is_lasting = size > CHANGE_SIZE and size > CHANGE_STRENGTH * error
    return Change(index=cut, ratio=math.exp(after - before)) if is_lasting else None


def robust(values: Floats) -> tuple[float, float]:
    """Return the median, and the standard deviation by the median absolute deviation."""
    median = float(np.median(values))
    return median, SIGMA_OF_MAD * float(np.median(np.abs(values - median)))
