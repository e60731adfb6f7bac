"""Speedup and efficiency over the number of ranks, with intervals and a fit of Amdahl's law."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import curve_fit
from scipy.special import stdtrit

from analysis.measure.differences import signature
from analysis.measure.mfu import mfu
from analysis.measure.speed import Arm, MeasuredRate, measure_rate, speedup
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, scaled

# Keys and facts that may differ between the points of one curve.
FREE = frozenset([
    "seed", "train.steps", "train.global_batch", "train.micro_batch", "layout.", "ranks", "nodes",
    "threads of all ranks",
])  # fmt: skip
MIN_POINTS = 3


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """The runs of one rank count; speedup and efficiency are relative to the smallest count."""

    ranks: int
    global_batch: int | None
    arm: Arm
    speedup: Estimate | None
    efficiency: Estimate | None


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """A curve over ranks: `strong` (one global batch) or `weak` (one batch per rank)."""

    kind: str
    points: tuple[ScalingPoint, ...]
    serial: Estimate | None


def curves(logs: Sequence[RunLog]) -> tuple[list[ScalingCurve], list[str]]:
    """Return every curve of at least two rank counts, and remarks on the runs in none of them."""
    families: dict[object, list[RunLog]] = {}
    remarks = []
    for log in logs:
        # A log without a config gets its number of ranks from the user.
        key = signature(log, without=FREE) if log.config is not None else log.format
        if key is None or ranks(log.facts) is None:
            remarks.append(f"{log.name}: left out: its config or its number of ranks is not known")
        else:
            families.setdefault(key, []).append(log)
    found = [curve for family in families.values() for curve in _family(family)]
    inside = {run.log.name for curve in found for p in curve.points for run in p.arm.runs}
    alone = [log.name for family in families.values() for log in family if log.name not in inside]
    remarks += [
        f"{name}: left out: no run differs from it in the number of ranks only" for name in alone
    ]
    return found, remarks


def _family(logs: list[RunLog]) -> list[ScalingCurve]:
    """Return the curves of runs that differ in ranks, batch and layout only."""
    found = []
    for kind, fixed in (("strong", _global_batch), ("weak", _rank_batch)):
        groups: dict[object, list[RunLog]] = {}
        for log in logs:
            groups.setdefault(fixed(log), []).append(log)
        for key, group in groups.items():
            if key is not None and len({ranks(log.facts) for log in group}) >= 2:
                found.append(_curve(kind, group))
    return found


def _global_batch(log: RunLog) -> int | None:
    return (log.config or {}).get("train.global_batch", log.facts.get("global_batch_size"))


def _rank_batch(log: RunLog) -> float | None:
    batch, count = _global_batch(log), ranks(log.facts)
    return batch / count if batch and count else None


def _curve(kind: str, logs: list[RunLog]) -> ScalingCurve:
    by_ranks: dict[int, list[MeasuredRate]] = {}
    for log in sorted(logs, key=lambda log: ranks(log.facts) or 0):
        clock = "train" if log.format == "ditbench" else None
        by_ranks.setdefault(ranks(log.facts) or 0, []).append(measure_rate(log, clock=clock))
    arms = {count: Arm(runs=tuple(runs)) for count, runs in by_ranks.items()}
    least = next(iter(arms))
    points = tuple(_point(count, arm, arms[least], least) for count, arm in arms.items())
    return ScalingCurve(
        kind=kind, points=points, serial=amdahl(points) if kind == "strong" else None
    )


def _point(count: int, arm: Arm, base: Arm, least: int) -> ScalingPoint:
    ratio = Estimate(value=1.0, low=1.0, high=1.0) if arm is base else speedup(base, arm)
    return ScalingPoint(
        ranks=count,
        global_batch=_global_batch(arm.runs[0].log),
        arm=arm,
        speedup=ratio,
        efficiency=None if ratio is None else scaled(ratio, least / count),
    )


def amdahl(points: Sequence[ScalingPoint]) -> Estimate | None:
    """Fit the serial share s of 1/speedup = s + (1 - s) n0/n (Amdahl 1967), with its interval.

    Return None for fewer than `MIN_POINTS` points.
    """
    known = [(point.ranks, point.speedup.value) for point in points if point.speedup]
    if len(known) < MIN_POINTS:
        return None
    share = np.array([known[0][0] / count for count, _ in known])
    time = np.array([1 / ratio for _, ratio in known])
    return fit_serial(share[1:], time[1:])


def fit_serial(share: Floats, time: Floats) -> Estimate:
    """Fit s of time = s + (1 - s) share by least squares on the logs."""

    def model(x: Floats, serial: float) -> Floats:
        return np.log(np.maximum(serial + (1 - serial) * x, 1e-9))

    best, covariance = curve_fit(model, share, np.log(time), p0=[0.05], bounds=(0, 1))
    value, freedom = float(best[0]), len(share) - 1
    half = float(stdtrit(freedom, 0.975) * np.sqrt(covariance[0, 0]))
    return Estimate(value=value, low=max(0.0, value - half), high=min(1.0, value + half))


def point_row(curve: ScalingCurve, point: ScalingPoint) -> dict[str, Any]:
    """Return one row of the table; absent values are None."""
    runs = point.arm.runs
    rates = [run.images_per_s for run in runs if run.images_per_s]
    images_per_s = float(np.mean(rates)) if rates else None
    return {
        "kind": curve.kind,
        "ranks": point.ranks,
        "global_batch": point.global_batch,
        "runs": len(runs),
        "images_per_s": images_per_s,
        "mfu": mfu(runs[0].log, images_per_s),
        "speedup": point.speedup.value if point.speedup else None,
        "speedup_low": point.speedup.low if point.speedup else None,
        "speedup_high": point.speedup.high if point.speedup else None,
        "efficiency": point.efficiency.value if point.efficiency else None,
        "efficiency_low": point.efficiency.low if point.efficiency else None,
        "efficiency_high": point.efficiency.high if point.efficiency else None,
    }


def curve_dict(curve: ScalingCurve) -> dict[str, Any]:
    """Return a curve as JSON fields."""
    return {
        "kind": curve.kind,
        "points": [point_row(curve, point) for point in curve.points],
        "serial_fraction": curve.serial.value if curve.serial else None,
        "serial_fraction_low": curve.serial.low if curve.serial else None,
        "serial_fraction_high": curve.serial.high if curve.serial else None,
    }
