"""Estimate main effects from pairs of cells that differ in one factor."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.rate import MeasuredRate
from analysis.measure.speed import SPEED, Arm
from analysis.observations import overlap, pass_of
from analysis.stats.contrast import Contrast, Quantity, refused
from analysis.stats.mean import Mean
from analysis.stats.samples import one_sample
from analysis.study.cells import Levels, factors_of, node_of_one_side, peak_memory_gb
from analysis.verdict import Comparison, verdicts

Runs = Sequence[MeasuredRate]
MIN_PAIRS = 3
PAIRS = ("pairs of cells",)
METRICS = {
    "images_per_s": SPEED,
    "gpu_gb": Quantity(name="memory", better="lower", margin=0.01),
}


def effect_rows(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row for each level of a factor against its first one, for every metric."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    rows: list[dict[str, Any]] = []
    comparisons = []
    for metric, quantity in METRICS.items():
        cells = _cells(arms, levels, metric)
        for index, factor in enumerate(factors):
            before, *others = sorted(dict.fromkeys(own[index] for own in levels), key=_rank)
            for after in others:
                pairs = _pairs(cells, index, before, after)
                if not pairs:
                    continue
                contrast = _contrast(pairs, metric)
                row = {"metric": metric, "factor": factor, "from": before, "to": after}
                rows.append(row | {"pairs": len(pairs)})
                names = {"base": f"{factor} {before}", "arm": f"{factor} {after}"}
                comparisons.append(Comparison(quantity=quantity, contrast=contrast, **names))
    return [row | found for row, found in zip(rows, verdicts(comparisons), strict=True)]


def _cells(arms: Sequence[Arm], levels: Sequence[Levels], metric: str) -> dict[Levels, Runs]:
    """Return the runs that measured a metric by the levels of their cell."""
    seen: dict[Levels, list[MeasuredRate]] = {}
    for arm, own in zip(arms, levels, strict=True):
        seen.setdefault(own, []).extend(run for run in arm.runs if _measured(run, metric))
    return {own: runs for own, runs in seen.items() if runs}


def _measured(run: MeasuredRate, metric: str) -> float | None:
    return peak_memory_gb(run.log) if metric == "gpu_gb" else run.images_per_s


def _rank(level: str) -> tuple[int, float]:
    """Sort levels: `false`, `null` and `none`, numbers ascending, others in order."""
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _pairs(
    cells: Mapping[Levels, Runs], index: int, before: str, after: str
) -> list[tuple[Runs, Runs]]:
    """Return the pairs of cells that differ in one factor, by two levels of it."""
    sides = [
        {own[:index] + own[index + 1 :]: runs for own, runs in cells.items() if own[index] == level}
        for level in (before, after)
    ]
    return [(sides[0][rest], sides[1][rest]) for rest in sides[0] if rest in sides[1]]


def _contrast(pairs: Sequence[tuple[Runs, Runs]], metric: str) -> Contrast:
    """Return the mean change over pairs of cells, with an interval for `MIN_PAIRS` or more."""
    logs = np.array([[_mean_log(runs, metric) for runs in pair] for pair in pairs])
    changes, n, why = logs[:, 1] - logs[:, 0], len(pairs), None
    if n < MIN_PAIRS:
        why = f"{n} pairs of cells, fewer than {MIN_PAIRS}"
    elif metric == "images_per_s":
        if slowed := overlap([run.log for pair in pairs for runs in pair for run in runs]):
            return refused(slowed)
        why = _confounded(pairs)
    if why:
        return Contrast(mean=Mean(value=float(changes.mean())), unit="repeat", n=n, why=why)
    return Contrast(mean=one_sample(changes), unit="repeat", n=n, is_claim=True, remarks=PAIRS)


def _mean_log(runs: Runs, metric: str) -> float:
    return float(np.mean([math.log(_measured(run, metric) or math.nan) for run in runs]))


def _confounded(pairs: Sequence[tuple[Runs, Runs]]) -> str | None:
    """Return what else differs between the cells of all pairs: their nodes, or when they ran.

    A study runs its cells in random order.
    """
    logs = [(a.log, b.log) for pair in pairs for a, b in zip(*pair, strict=False)]
    if node := node_of_one_side(logs):
        return f"cells of one level ran on {node}, of the other they did not"
    if any(pass_of(a) or pass_of(b) for a, b in logs):
        return None
    later = [_began(after) - _began(before) for before, after in pairs]
    if min(later) > 0 or max(later) < 0:
        return "the cells of one level all ran after their pairs, and a machine may drift"
    return None


def _began(runs: Runs) -> float:
    return float(np.mean([run.breakdown.began if run.breakdown else math.nan for run in runs]))
