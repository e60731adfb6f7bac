"""Compare the loss curves of two runs: the same within a margin, or different."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats import intervals
from analysis.stats.intervals import Estimate, Floats
from configs.errors import Unreadable
from configs.schema import tagged
from runs.records import starts

AXES = {
    "step": "optimizer steps",
    "images": "images seen",
    "train_s": "seconds of training steps",
    "wall": "seconds since the first start",
    "gpu_hours": "hours of training steps times ranks",
}
FACTOR_TOLERANCE = 0.02
MAX_FACTOR = 4096
# The weights of terms that training adds to its loss.
TERMS = tagged("pretrain", "term")
FEWEST_SEEDS = 3
# Kinds of runs without a training to compare.
NO_TRAINING = ("encode", "gns", "infer", "sample")


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The losses of a run [n] over one ascending axis `x` [n], with the steps [n]."""

    log: RunLog
    x: Floats
    loss: Floats
    step: Floats


@dataclass(frozen=True, kw_only=True)
class CurvePair:
    """Two curves on their common range.

    `difference` is the mean of b - a, `log_ratio` that of log(b / a), None unless all losses are
    positive. A ratio of losses that fall together stays level, so its noise is not taken for drift.
    """

    a: RunLog
    b: RunLog
    x: Floats
    loss_a: Floats
    loss_b: Floats
    difference: Estimate
    log_ratio: Estimate | None

    @property
    def ratio(self) -> float | None:
        """The mean loss of b over the mean loss of a, None if the latter is 0."""
        mean_a = float(self.loss_a.mean())
        return float(self.loss_b.mean()) / mean_a if mean_a else None

    def verdict(self, *, margin: float) -> str:
        """Return whether the losses agree within `margin`, a share of a's loss."""
        if self.log_ratio is not None:
            found, least, most = self.log_ratio, math.log1p(-margin), math.log1p(margin)
        else:
            found, most = self.difference, margin * abs(float(self.loss_a.mean()))
            least = -most
        return _word(found, least, most)


def _word(found: Estimate, least: float, most: float) -> str:
    """Return whether an interval lies within the bounds, beyond one of them, or neither."""
    if found.low is None or found.high is None:
        return "undetermined"
    if least <= found.low and found.high <= most:
        return "same loss"
    return "different" if found.low > most or found.high < least else "undetermined"


def pooled_verdict(pairs: Sequence[CurvePair], *, margin: float) -> str | None:
    """Return the verdict on pairs of curves, each pair with a seed of its own.

    The interval comes from the scatter of the mean log ratio between seeds. Return None for fewer
    than three pairs, whose scatter says little, or if a loss is not positive.
    """
    logs = [pair.log_ratio.value for pair in pairs if pair.log_ratio is not None]
    if len(logs) < max(len(pairs), FEWEST_SEEDS):
        return None
    return _word(intervals.geometric_mean(np.array(logs)), 1 - margin, 1 + margin)


def loss_curve(log: RunLog, *, by: str, of: str = "loss") -> LossCurve:
    """Return a run's training loss over an axis, or its evaluation `of`, or raise `Unreadable`."""
    if of != "loss":
        return _evaluated(log, by, of)
    x = axis_values(log, by)
    loss = log.column("loss")
    kept = ~np.isnan(x) & ~np.isnan(loss)
    if not kept.any():
        missing = "loss" if np.isnan(loss).all() else f"{by} beside its loss"
        raise Unreadable(f"{log.path}: records no {missing}")
    order = np.flatnonzero(kept)
    order = order[np.concatenate([[True], np.diff(np.maximum.accumulate(x[order])) > 0])]
    return LossCurve(log=log, x=x[order], loss=loss[order], step=log.step[order].astype(float))


def _evaluated(log: RunLog, by: str, of: str) -> LossCurve:
    """Return an evaluation's curve; after a resume the newest value of a step counts."""
    latest = {
        int(e["step"]): e
        for e in log.evaluations
        if all(type(e.get(key)) in (int, float) for key in (of, "step"))
    }
    if not latest:
        known = sorted({name for record in log.evaluations for name in record})
        raise Unreadable(f"{log.path}: evaluates no {of}; it has {', '.join(known) or 'none'}")
    # Evaluations take their place on the axis from the training record of the same step.
    axis = dict(zip(log.step.tolist(), axis_values(log, by).tolist(), strict=True))
    step = np.array(sorted(latest), dtype=float)
    x = np.array([axis.get(int(at), np.nan) for at in step]) if by != "step" else step
    loss = np.array([latest[int(at)][of] for at in step], dtype=float)
    kept = ~np.isnan(x)
    if not kept.any():
        raise Unreadable(f"{log.path}: records no {by} at the steps of its {of}")
    return LossCurve(log=log, x=x[kept], loss=loss[kept], step=step[kept])


def axis_values(log: RunLog, by: str) -> Floats:
    """Return the values [n] of one of `AXES` at the rows of a log, NaN if they are unknown."""
    if by == "step":
        return log.step.astype(float)
    if by == "wall":
        begun = [event["time"] for event in starts(log.events)]
        return log.column("time") - (min(begun) if begun else np.nan)
    if by == "gpu_hours":
        return log.column("train_s") * (ranks(log.facts) or np.nan) / 3600
    return log.column(by)


def same_quantity(a: RunLog, b: RunLog, of: str) -> bool:
    """Return False if `of` is a loss of other terms, or of pixels and latents, or other latents."""
    if of == "loss" and _terms(a) != _terms(b):
        return False
    sources = [(log.config or {}).get("data.source") for log in (a, b)]
    if "loss" not in of or None in sources:
        return True
    of_latents = [source == "latents" for source in sources]
    vaes = [log.facts.get("vae_sha256") for log in (a, b)]  # an older run does not say it
    return of_latents[0] == of_latents[1] and (None in vaes or vaes[0] == vaes[1])


def _terms(log: RunLog) -> list[float]:
    """Return the weights of the terms that training adds to its loss, and validation does not."""
    return [(log.config or {}).get(name) or 0.0 for name in TERMS]


def pair_curves(
    a: RunLog, b: RunLog, *, by: str = "step", after: float = 0.0, of: str = "loss"
) -> CurvePair:
    """Pair two runs on the common range of an axis, from `after` on.

    The pairs are the points that both recorded if these are at least half of a curve's; otherwise
    b is interpolated linearly at the points of a. Raise `Unreadable` if there are none, or for
    losses of different quantities (`same_quantity`).
    """
    if not same_quantity(a, b, of):
        raise Unreadable(
            f"{a.name} and {b.name}: their {of} is of other terms (compare validation_loss), or of "
            "pixels or latents of another VAE (compare their images, for example by FID)"
        )
    one, other = loss_curve(a, by=by, of=of), loss_curve(b, by=by, of=of)
    low, high = max(one.x[0], other.x[0], after), min(one.x[-1], other.x[-1])
    common, at_a, at_b = np.intersect1d(one.x, other.x, return_indices=True)
    inside = (common >= low) & (common <= high)
    points = min(((c.x >= low) & (c.x <= high)).sum() for c in (one, other))
    if inside.sum() * 2 >= points and inside.any():
        x, loss_a, loss_b = common[inside], one.loss[at_a[inside]], other.loss[at_b[inside]]
    else:
        here = (one.x >= low) & (one.x <= high)
        x, loss_a = one.x[here], one.loss[here]
        loss_b = np.interp(x, other.x, other.loss)
    if not len(x):
        raise Unreadable(f"{a.name} and {b.name}: no common range of {by} from {after:g} on")
    difference = _mean(loss_b - loss_a)
    are_positive = bool((loss_a > 0).all() and (loss_b > 0).all())
    log_ratio = _mean(np.log(loss_b / loss_a)) if are_positive else None
    return CurvePair(
        a=a, b=b, x=x, loss_a=loss_a, loss_b=loss_b, difference=difference, log_ratio=log_ratio
    )


def _mean(gap: Floats) -> Estimate:
    """Return the mean of a gap with its interval, which has no width if the gap is 0 throughout."""
    return intervals.mean_interval(gap) if gap.any() else Estimate(value=0.0, low=0.0, high=0.0)


def whole_factor(found: CurvePair) -> int | None:
    """Return k if b's loss is k times a's throughout, -k if a's is k times b's, otherwise None.

    A loss that was summed or divided over ranks or microbatches differs by a whole factor.
    """
    if (found.loss_a <= 0).any() or (found.loss_b <= 0).any():
        return None
    ratios = found.loss_b / found.loss_a
    sign = 1 if np.median(ratios) > 1 else -1
    median = intervals.median_interval(ratios**sign)
    factor = round(median.value)
    if not 2 <= factor <= MAX_FACTOR or median.low is None or median.high is None:
        return None
    halves = [float(np.median(half)) for half in np.array_split(ratios**sign, 2)]
    values = [median.low, median.high, *halves]
    is_whole = all(abs(value / factor - 1) < FACTOR_TOLERANCE for value in values)
    return sign * factor if is_whole else None


def factor_remark(found: CurvePair, factor: int) -> str:
    """Return a sentence on a whole factor, with the rank counts that could explain it."""
    k = abs(factor)
    large, small = (found.b, found.a) if factor > 0 else (found.a, found.b)
    counts = [f"{log.name} has {k} ranks" for log in (large, small) if ranks(log.facts) == k]
    why = f" ({'; '.join(counts)})" if counts else ""
    return (
        f"the loss of {large.name} is {k} times that of {small.name} throughout: "
        f"one of them is summed or divided over ranks or microbatches{why}"
    )


def exact_differences(a: RunLog, b: RunLog, *, of: str = "loss") -> dict[str, Any]:
    """Return whether the losses at common steps are equal, and where and how much they differ."""
    one, other = loss_curve(a, by="step", of=of), loss_curve(b, by="step", of=of)
    step, at_a, at_b = np.intersect1d(one.x, other.x, return_indices=True)
    if not len(step):
        raise Unreadable(f"{a.name} and {b.name}: no step was recorded in both")
    left, right = one.loss[at_a], other.loss[at_b]
    unlike = np.flatnonzero(left != right)
    size = np.maximum(np.abs(left), np.abs(right))
    relative = np.abs(right - left)[unlike] / size[unlike]
    return {
        "a": a.name,
        "b": b.name,
        "common_steps": len(step),
        "differing": len(unlike),
        "first_step": int(step[unlike[0]]) if len(unlike) else None,
        "largest_relative": float(relative.max()) if len(unlike) else 0.0,
        "verdict": "different" if len(unlike) else "identical",
    }


def pair_row(found: CurvePair, *, margin: float) -> dict[str, Any]:
    """Return one row of the comparison; absent values are None."""
    return {
        "a": found.a.name,
        "b": found.b.name,
        "ratio": found.ratio,
        "difference": found.difference.value,
        "low": found.difference.low,
        "high": found.difference.high,
        "verdict": found.verdict(margin=margin),
    }
