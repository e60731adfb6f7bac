"""The steady rate of a run: where warm-up ends, which intervals are outliers, and the median."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats.intervals import Estimate, Floats, autocorrelation_time, median_interval

MIN_SEGMENT = 10
CHANGE = 4.0
CLIP = 3.0
GUARD = 4
LONGEST_WARMUP = 0.4
MOST_CORRELATED = 2.0
OUTLIER, SLOW, CLOSE = 5.0, 3.5, 2.5
CROWDED = 0.05
# Of few intervals the spread is itself uncertain: with n of them noise goes (1 + FEW / n) as far.
# What lies around more than `MOST_OUTLIERS` is no outlier, but the run.
FEW, MOST_OUTLIERS = 12, 0.5
# The density of a normal at its middle over the difference of it and that at `CLOSE` deviations:
# how much less a value on the edge says of the median when the cut moves with it.
CUT_CLOSE = 1 / (1 - float(np.exp(-(CLOSE**2) / 2)))
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
    out = outliers(seconds[kept])
    kept[np.flatnonzero(kept)[out]] = False
    return Steady(
        seconds=median_interval(seconds[kept], wider=CUT_CLOSE if is_crowded(out) else 1.0),
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
    """Which intervals are surely slower, or faster, than the steady ones.

    Slow ones shift and widen the middle, so that the faster half says how far noise goes
    (`SLOW` deviations on the log scale, `OUTLIER` to the fast side), again and again until none is
    left: each round judges by what the last one kept. Where many are slow, some of these hide
    within `SLOW`: then both sides are cut at `CLOSE`, which leaves the median in its place. Where
    that would leave less than half of all, none is an outlier.
    """
    logs = np.log(seconds)
    none = np.zeros(len(logs), dtype=bool)
    out = _beyond(logs, none, slow=SLOW, fast=OUTLIER)
    if is_crowded(out):
        out = _beyond(logs, out, slow=CLOSE, fast=CLOSE)
    return out if out.sum() <= MOST_OUTLIERS * len(out) else none


def is_crowded(out: NDArray[np.bool_]) -> bool:
    """Whether so many are outliers that more of them hide in the noise."""
    return bool(out.mean() > CROWDED) if len(out) else False


def _beyond(logs: Floats, out: NDArray[np.bool_], *, slow: float, fast: float) -> NDArray[np.bool_]:
    wider = 1 + FEW / max(len(logs), 1)
    while not out.all():
        middle = float(np.median(logs[~out]))
        below = logs[~out & (logs <= middle)]
        sigma = wider * SIGMA_OF_MAD * float(np.median(middle - below))
        found = (logs - middle > slow * sigma) | (middle - logs > fast * sigma) if sigma else out
        if (found == out).all() or found.sum() < out.sum():
            break
        out = found
    return out


def _robust(values: Floats) -> tuple[float, float]:
    """Median and standard deviation by the median absolute deviation."""
    middle = float(np.median(values))
    return middle, SIGMA_OF_MAD * float(np.median(np.abs(values - middle)))
