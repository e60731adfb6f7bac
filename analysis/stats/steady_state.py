"""The steady rate of a run: find the end of warm-up, drop outliers, take the median."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats.intervals import Estimate, Floats, autocorrelation_time, median_interval

# Warm-up: a segment shorter than MIN_SEGMENT has none, a step needs MIN_STRENGTH deviations, and
# 1/GUARD of the cut is added to it as a margin.
MIN_SEGMENT, MIN_STRENGTH, CLIP, GUARD = 10, 4.0, 3.0, 4
MAX_WARMUP_SHARE = 0.4
MAX_AUTOCORRELATION = 2.0
# Outliers: robust deviations on the fast side, on the slow side, and on both when crowded.
OUTLIER, SLOW, CLOSE = 5.0, 3.5, 2.5
CROWDED = 0.05
# The spread of n intervals is itself uncertain, so the bounds are 1 + FEW / n times as wide.
FEW = 12
# If a larger share lies outside the bounds, none are outliers: that is how the run is.
MAX_OUTLIER_SHARE = 1 / 3
# The density of a normal at its centre over its difference from that at `CLOSE` deviations: a
# value at the edge says this much less about the median if the cut moves with it.
CUT_CLOSE = 1 / (1 - float(np.exp(-(CLOSE**2) / 2)))
SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The median of interval durations, and which intervals it is taken over."""

    seconds: Estimate
    kept: NDArray[np.bool_]
    warmup: int
    outliers: int


def steady(seconds: Floats, segment: NDArray[np.int64]) -> Steady:
    """Return the median of `seconds` (per step, in order) without warm-up and outliers.

    Each segment (the intervals of one attempt) has its own warm-up.
    """
    kept = np.ones(len(seconds), dtype=bool)
    for number in np.unique(segment):
        rows = np.flatnonzero(segment == number)
        kept[rows[: warmup_end(seconds[rows])]] = False
    warm = int((~kept).sum())
    out = outliers(seconds[kept])
    kept[np.flatnonzero(kept)[out]] = False
    return Steady(
        seconds=median_interval(seconds[kept], wider=CUT_CLOSE if is_crowded(out) else 1.0),
        kept=kept,
        warmup=warm,
        outliers=int((~kept).sum()) - warm,
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
    median, sigma = _robust(logs[n // 2 :])
    scores = np.clip((logs - median) / sigma, -CLIP, CLIP) if sigma else np.sign(logs - median)
    tail = scores[n // 2 :]
    above = (tail > np.median(tail)).astype(np.float64)
    correlation = min(autocorrelation_time(above), MAX_AUTOCORRELATION)
    deviation = max(float(tail.std()), 0.5) * correlation**0.5
    cut, most = 0, int(MAX_WARMUP_SHARE * n)
    while (more := _slow_head(scores[cut:], most - cut, deviation)) > 0:
        cut += more
    return min(cut + cut // GUARD, most)


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


def outliers(seconds: Floats) -> NDArray[np.bool_]:
    """Return which intervals are significantly slower or faster than the steady ones.

    Slow intervals shift and widen the centre, so the spread is that of the faster half: the bounds
    are `SLOW` deviations on the log scale, and `OUTLIER` to the fast side. Rounds repeat on what
    the last one kept until nothing more is cut. If many are slow, some of them hide within `SLOW`;
    both sides are then cut at `CLOSE`, which leaves the median in place. If that would cut more
    than a third of all intervals, none is an outlier: the run has two speeds.
    """
    logs = np.log(seconds)
    none = np.zeros(len(logs), dtype=bool)
    out = _beyond(logs, none, slow=SLOW, fast=OUTLIER)
    if is_crowded(out):
        out = _beyond(logs, out, slow=CLOSE, fast=CLOSE)
    return out if out.sum() <= MAX_OUTLIER_SHARE * len(out) else none


def is_crowded(out: NDArray[np.bool_]) -> bool:
    """Whether there are so many outliers that more of them hide in the noise."""
    return bool(out.mean() > CROWDED) if len(out) else False


def _beyond(logs: Floats, out: NDArray[np.bool_], *, slow: float, fast: float) -> NDArray[np.bool_]:
    wider = 1 + FEW / max(len(logs), 1)
    while not out.all():
        median = float(np.median(logs[~out]))
        below = logs[~out & (logs <= median)]
        sigma = wider * SIGMA_OF_MAD * float(np.median(median - below))
        found = (logs - median > slow * sigma) | (median - logs > fast * sigma) if sigma else out
        if (found == out).all() or found.sum() < out.sum():
            break
        out = found
    return out


def _robust(values: Floats) -> tuple[float, float]:
    """Return the median, and the standard deviation by the median absolute deviation."""
    median = float(np.median(values))
    return median, SIGMA_OF_MAD * float(np.median(np.abs(values - median)))
