"""Estimate main effects from pairs of cells that differ in one factor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.rate import MeasuredRate
from analysis.measure.speed import SPEED, Arm
from analysis.observations import overlap
from analysis.stats.contrast import Contrast, Quantity, refused
from analysis.stats.intervals import Floats
from analysis.stats.judge import judge
from analysis.stats.mean import Mean
from analysis.stats.samples import one_sample
from analysis.study.cells import Levels, factors_of, peak_memory_gb
from analysis.verdict import verdict_fields

MIN_PAIRS = 3
PAIRS = ("pairs of cells",)
METRICS = {
    "images_per_s": SPEED,
    "gpu_gb": Quantity(name="memory", better="lower", stretch="peak", margin=0.01),
}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one level of a factor against its first one, over pairs of cells."""

    metric: str
    factor: str
    before: str
    after: str
    contrast: Contrast


def effects(arms: Sequence[Arm]) -> list[Effect]:
    """Return the effect of every level against the factor's first one, for every metric."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    slowed = overlap([run.log for arm in arms for run in arm.runs])
    found = []
    for metric in METRICS:
        cells = _mean_logs(arms, levels, metric)
        for index, factor in enumerate(factors):
            before, *others = sorted(dict.fromkeys(own[index] for own in levels), key=_rank)
            for after in others:
                changes = _changes(cells, index, before, after)
                if not len(changes):
                    continue
                is_slowed = slowed is not None and metric == "images_per_s"
                contrast = refused(slowed) if is_slowed and slowed else _contrast(changes)
                effect = Effect(
                    metric=metric, factor=factor, before=before, after=after, contrast=contrast
                )
                found.append(effect)
    return found


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


def effect_rows(found: Sequence[Effect]) -> list[dict[str, Any]]:
    """Return a row per effect, whose verdicts share one error."""
    verdicts = judge([(one.contrast, METRICS[one.metric]) for one in found])
    return [
        {
            "metric": one.metric,
            "factor": one.factor,
            "from": one.before,
            "to": one.after,
            "pairs": one.contrast.n,
            **verdict_fields(
                verdict,
                METRICS[one.metric],
                base=f"{one.factor} {one.before}",
                arm=f"{one.factor} {one.after}",
            ),
        }
        for one, verdict in zip(found, verdicts, strict=True)
    ]
