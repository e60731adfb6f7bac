"""Speedup and efficiency over the number of ranks, with intervals and a fit of Amdahl's law."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import curve_fit

from analysis.measure.differences import signature
from analysis.measure.mfu import mfu
from analysis.measure.rate import MeasuredRate, measure_rate
from analysis.measure.speed import SPEED, Arm, speed_contrast
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, Floats, estimate_fields
from analysis.stats.mean import Mean
from analysis.verdict import against_first
from configs.schema import KINDS, tagged

# Keys and facts that may differ between the points of one curve.
FREE = frozenset(["ranks", "nodes", "threads of all ranks"]).union(
    *(tagged(kind, "scale") for kind in KINDS)
)
MIN_POINTS = 3


@dataclass(frozen=True, kw_only=True)
class ScalingCurve:
    """A curve over ranks: `strong` (one global batch) or `weak` (one batch per rank).

    `rows` has a row per rank count, ascending; speedup and efficiency are relative to the first.
    """

    kind: str
    rows: list[dict[str, Any]]
    names: frozenset[str]
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
    inside = {name for curve in found for name in curve.names}
    alone = [log.name for family in families.values() for log in family if log.name not in inside]
    remarks += [
        f"{name}: left out: no run differs from it in the number of ranks only" for name in alone
    ]
    return found, remarks


def _family(logs: list[RunLog]) -> list[ScalingCurve]:
    """Return the curves of runs that differ in ranks, batch and layout only."""
    found = []
    for kind, fixed in (("strong", lambda log: log.global_batch), ("weak", _rank_batch)):
        groups: dict[object, list[RunLog]] = {}
        for log in logs:
            groups.setdefault(fixed(log), []).append(log)
        for key, group in groups.items():
            if key is not None and len({ranks(log.facts) for log in group}) >= 2:
                found.append(_curve(kind, group))
    return found


def _rank_batch(log: RunLog) -> float | None:
    batch, count = log.global_batch, ranks(log.facts)
    return batch / count if batch and count else None


def _curve(kind: str, logs: list[RunLog]) -> ScalingCurve:
    by_ranks: dict[int, list[MeasuredRate]] = {}
    for log in sorted(logs, key=lambda log: ranks(log.facts) or 0):
        clock = "train" if log.format == "ditbench" else None
        by_ranks.setdefault(ranks(log.facts) or 0, []).append(measure_rate(log, clock=clock))
    arms = {count: Arm(runs=tuple(runs)) for count, runs in by_ranks.items()}
    least = next(iter(arms))
    base, *others = arms.values()
    contrasts = [speed_contrast(base, arm) for arm in others]
    verdicts = against_first(contrasts, SPEED, names=[arm.name for arm in arms.values()])
    rows = [
        _row(kind, count, arm) | verdict
        for (count, arm), verdict in zip(arms.items(), verdicts, strict=True)
    ]
    for row in rows:
        row |= _efficiency(row, least)
    return ScalingCurve(
        kind=kind,
        rows=rows,
        names=frozenset(log.name for log in logs),
        serial=amdahl(rows) if kind == "strong" else None,
    )


def _row(kind: str, count: int, arm: Arm) -> dict[str, Any]:
    """Return the row of a rank count; absent values are None."""
    rates = [run.images_per_s for run in arm.runs if run.images_per_s]
    images_per_s = float(np.mean(rates)) if rates else None
    log = arm.runs[0].log
    return {
        "kind": kind,
        "ranks": count,
        "global_batch": log.global_batch,
        "runs": len(arm.runs),
        "images_per_s": images_per_s,
        "mfu": mfu(log, images_per_s),
    }


def _efficiency(row: Mapping[str, Any], least: int) -> dict[str, float | None]:
    """Return the speedup over the ranks that it took, with its interval."""
    share = least / row["ranks"]
    if row["word"] is None:
        return {"efficiency": 1.0, "efficiency_low": None, "efficiency_high": None}
    ends = (("efficiency", "ratio"), ("efficiency_low", "low"), ("efficiency_high", "high"))
    return {name: None if row[of] is None else row[of] * share for name, of in ends}


def amdahl(rows: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """Fit s of 1/speedup = s + (1 - s) n0/n (Amdahl 1967); None below `MIN_POINTS` points."""
    known = [(row["ranks"], row["ratio"] or 1.0) for row in rows if row["ratio"] or row is rows[0]]
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
    error = float(np.sqrt(covariance[0, 0]))
    found = Mean(value=value, error=error, freedom=float(freedom)).estimate()
    assert found.low is not None
    assert found.high is not None
    return Estimate(value=value, low=max(0.0, found.low), high=min(1.0, found.high))


def curve_dict(curve: ScalingCurve) -> dict[str, Any]:
    """Return a curve as JSON fields."""
    return {
        "kind": curve.kind,
        "points": curve.rows,
        **estimate_fields("serial_fraction", curve.serial),
    }
