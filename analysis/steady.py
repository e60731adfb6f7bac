"""The steady rate of a run: where warm-up ends, which intervals are outliers, and the median."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.noise import Estimate, Floats, autocorrelation_time, median_interval

MIN_SEGMENT = 10
CHANGE = 4.0
CLIP = 3.0
GUARD = 4
LONGEST_WARMUP = 0.4
MOST_CORRELATED = 2.0
OUTLIER = 5.0
SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class Steady:
    """What was kept of a series of interval durations, and its median."""

    seconds: Estimate
    kept: NDArray[np.bool_]
    warmup: int
    outliers: int


def steady(seconds: Floats, segment: NDArray[np.int64]) -> Steady:
    """The median of `seconds` (per step, in order) without warm-ups and outliers.

    Each segment (the intervals of one attempt) warms up for itself.
    """
    kept = np.ones(len(seconds), dtype=bool)
    for number in np.unique(segment):
        rows = np.flatnonzero(segment == number)
        kept[rows[: warmup_end(seconds[rows])]] = False
    warm = int((~kept).sum())
    kept[np.flatnonzero(kept)[outliers(seconds[kept])]] = False
    return Steady(
        seconds=median_interval(seconds[kept]),
        kept=kept,
        warmup=warm,
        outliers=int((~kept).sum()) - warm,
    )


def warmup_end(seconds: Floats) -> int:
    """How many leading intervals are slower than the steady ones: at most `LONGEST_WARMUP`.

    The second half says what is steady. Logs, clipped at `CLIP` robust deviations so that
    outliers weigh little, are searched for the most significant step (a CUSUM against the
    long-run deviation); what stands before it is cut, until no step is left: a compile, then a
    slower plateau, then a ramp are each found.
    """
    n = len(seconds)
    if n < MIN_SEGMENT:
        return 0
    logs = np.log(seconds)
    middle, sigma = _robust(logs[n // 2 :])
    scores = np.clip((logs - middle) / sigma, -CLIP, CLIP) if sigma else np.sign(logs - middle)
    tail = scores[n // 2 :]
    above = (tail > np.median(tail)).astype(np.float64)
    deviation = (
        max(float(tail.std()), 0.5) * min(autocorrelation_time(above), MOST_CORRELATED) ** 0.5
    )
    cut, most = 0, int(LONGEST_WARMUP * n)
    while (more := _slow_head(scores[cut:], most - cut, deviation)) > 0:
        cut += more
    return min(cut + cut // GUARD, most)


def _slow_head(scores: Floats, most: int, deviation: float) -> int:
    """The length, up to `most`, of the head that is most surely slower than the rest, else 0."""
    if most < 1:
        return 0
    n = len(scores)
    heads = np.arange(1, most + 1)
    sums = np.cumsum(scores)
    gap = sums[: len(heads)] / heads - (sums[-1] - sums[: len(heads)]) / (n - heads)
    strength = gap * np.sqrt(heads * (n - heads) / n) / deviation
    best = int(np.argmax(strength))
    return int(heads[best]) if strength[best] > CHANGE else 0


def outliers(seconds: Floats) -> NDArray[np.bool_]:
    """Which intervals lie beyond `OUTLIER` robust deviations of the median, on the log scale.

    A fifth of slow intervals shifts a plain median by a third of the noise, so they are taken
    out, again and again until none is left: each round judges by what the last one kept.
    """
    logs = np.log(seconds)
    out = np.zeros(len(logs), dtype=bool)
    while True:
        if out.all():
            return out
        middle, sigma = _robust(logs[~out])
        found = np.abs(logs - middle) > OUTLIER * sigma if sigma else out
        if (found == out).all() or found.sum() < out.sum():
            return out
        out = found


def _robust(values: Floats) -> tuple[float, float]:
    """Median and standard deviation by the median absolute deviation."""
    middle = float(np.median(values))
    return middle, SIGMA_OF_MAD * float(np.median(np.abs(values - middle)))
