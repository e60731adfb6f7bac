"""Estimate main effects from pairs of cells that differ in one factor."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.measure.rate import MeasuredRate
from analysis.measure.speed import SPEED, Arm
from analysis.observations import overlap
from analysis.stats.contrast import Contrast, Quantity, refused
from analysis.stats.intervals import Floats
from analysis.stats.mean import Mean
from analysis.stats.samples import one_sample
from analysis.study.cells import Levels, factors_of, peak_memory_gb
from analysis.verdict import Comparison, verdicts

MIN_PAIRS = 3
PAIRS = ("pairs of cells",)
METRICS = {
    "images_per_s": SPEED,
    "gpu_gb": Quantity(name="memory", better="lower", margin=0.01),
}


def effect_rows(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row for each level of a factor against its first one, for every metric."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    slowed = overlap([run.log for arm in arms for run in arm.runs])
    rows: list[dict[str, Any]] = []
    comparisons = []
    for metric, quantity in METRICS.items():
        cells = _mean_logs(arms, levels, metric)
        for index, factor in enumerate(factors):
            before, *others = sorted(dict.fromkeys(own[index] for own in levels), key=_rank)
            for after in others:
                changes = _changes(cells, index, before, after)
                if not len(changes):
                    continue
                why = slowed if quantity is SPEED else None
                contrast = refused(why) if why else _contrast(changes)
                row = {"metric": metric, "factor": factor, "from": before, "to": after}
                rows.append(row | {"pairs": contrast.n})
                names = {"base": f"{factor} {before}", "arm": f"{factor} {after}"}
                comparisons.append(Comparison(quantity=quantity, contrast=contrast, **names))
    return [row | found for row, found in zip(rows, verdicts(comparisons), strict=True)]


def _mean_logs(arms: Sequence[Arm], levels: Sequence[Levels], metric: str) -> dict[Levels, float]:
    """Return the mean log of a metric by the levels of a cell, for the cells that measured it."""
    seen: dict[Levels, list[float]] = {}
    for arm, own in zip(arms, levels, strict=True):
        seen.setdefault(own, []).extend(
            math.log(value) for run in arm.runs if (value := _measured(run, metric))
        )
    return {own: float(np.mean(logs)) for own, logs in seen.items() if logs}


def _measured(run: MeasuredRate, metric: str) -> float | None:
    return peak_memory_gb(run.log) if metric == "gpu_gb" else run.images_per_s


def _rank(level: str) -> tuple[int, float]:
    """Sort levels: `false`, `null` and `none`, numbers ascending, others in order."""
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _changes(cells: dict[Levels, float], index: int, before: str, after: str) -> Floats:
    """Return the log ratio in each pair of cells that differ in one factor, by two levels of it."""
    sides = [
        {own[:index] + own[index + 1 :]: log for own, log in cells.items() if own[index] == level}
        for level in (before, after)
    ]
    return np.array([sides[1][rest] - sides[0][rest] for rest in sides[0] if rest in sides[1]])


def _contrast(changes: Floats) -> Contrast:
    """Return the mean change over pairs of cells, with an interval for `MIN_PAIRS` or more."""
    n = len(changes)
    if n >= MIN_PAIRS:
        return Contrast(mean=one_sample(changes), unit="repeat", n=n, is_claim=True, remarks=PAIRS)
    mean, why = Mean(value=float(changes.mean())), f"{n} pairs of cells, fewer than {MIN_PAIRS}"
    return Contrast(mean=mean, unit="repeat", n=n, why=why)
