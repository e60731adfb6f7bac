"""`cells --ablation`: main effects of a study's factors."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.arms import Arm, group_arms
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, log_ratio, why_not_comparable
from analysis.observations import begun_at, pass_of, ran_at_once
from analysis.read.find import read_logs
from analysis.stats.intervals import Floats
from analysis.stats.mean import Mean
from analysis.stats.repeats import ran_apart
from analysis.stats.replicates import Contrast, refused
from analysis.stats.samples import one_sample, vary
from analysis.study.cells import Levels, factors_of, node_of_one_side, started_runs
from analysis.table import put, remark
from analysis.verdict import Comparison, verdicts

EXAMPLE = "ditbench cells logs/layouts-1120 --ablation"
Pair = tuple[Arm, Arm]
MIN_PAIRS = 3


def run(args: argparse.Namespace) -> int:
    """Print the effects; return 1 if no two cells differ in one factor only."""
    logs = started_runs(read_logs(args.paths))
    known = [log for log in logs if log.config is not None]
    rows = effect_rows(group_arms(measure_rates(known)))
    put(rows, args)
    remark(f"{log.name}: left out: its config is not known" for log in logs if log.config is None)
    if not rows:
        remark(["no two cells differ in one factor only"])
    return 0 if rows else 1


def effect_rows(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return a row for each level of a factor against its first one."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    cells = _cells(arms, levels)
    at_once = ran_at_once([run.log for arm in arms for run in arm.runs])
    rows: list[dict[str, Any]] = []
    comparisons = []
    for index, factor in enumerate(factors):
        before, *others = sorted(dict.fromkeys(own[index] for own in levels), key=_rank)
        for after in others:
            if pairs := _pairs(cells, index, before, after):
                rows.append({"factor": factor, "from": before, "to": after, "pairs": len(pairs)})
                comparisons.append(
                    Comparison(
                        base=f"{factor} {before}",
                        arm=f"{factor} {after}",
                        quantity=SPEED,
                        contrast=_contrast(pairs, at_once),
                    )
                )
    return [row | found for row, found in zip(rows, verdicts(comparisons), strict=True)]


def _cells(arms: Sequence[Arm], levels: Sequence[Levels]) -> dict[Levels, Arm]:
    """Return the runs with a rate by the levels of their cell."""
    found: dict[Levels, Arm] = {}
    for arm, own in zip(arms, levels, strict=True):
        known = found[own].runs if own in found else ()
        if runs := (*known, *(run for run in arm.runs if run.images_per_s)):
            found[own] = Arm(runs=runs)
    return found


def _rank(level: str) -> tuple[int, float]:
    """Sort levels: `false`, `null` and `none`, numbers ascending, others in order."""
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _pairs(cells: Mapping[Levels, Arm], index: int, before: str, after: str) -> list[Pair]:
    """Return the pairs of cells that differ in one factor, by two levels of it."""
    sides = [
        {own[:index] + own[index + 1 :]: arm for own, arm in cells.items() if own[index] == level}
        for level in (before, after)
    ]
    return [(sides[0][rest], sides[1][rest]) for rest in sides[0] if rest in sides[1]]


def _contrast(pairs: Sequence[Pair], at_once: Mapping[int, str]) -> Contrast:
    """Return the mean change over pairs of cells, with an interval for `MIN_PAIRS` or more."""
    unlike = (why_not_comparable(*pair, at_once) for pair in pairs)
    if why := next(filter(None, unlike), None):
        return refused(why)
    changes = np.array([one for pair in pairs if (one := log_ratio(*pair)) is not None])
    n = len(changes)
    if n == 0:
        return Contrast(mean=None, why="no steps that both cells of a pair have")
    if n < MIN_PAIRS:
        why = f"{n} pairs of cells, fewer than {MIN_PAIRS}"
    else:
        doubts = (arm.doubt or arm.fault for pair in pairs for arm in pair)
        why = next(filter(None, doubts), None) or _confounded(pairs)
    if why:
        return Contrast(mean=Mean(value=float(changes.mean())), unit="pair", n=n, why=why)
    varies = _varies(pairs, changes)
    return Contrast(mean=one_sample(changes), unit="pair", n=n, is_claim=True, why=varies)


def _varies(pairs: Sequence[Pair], changes: Floats) -> str | None:
    """Return between which ratios the change varies if repeats do not scatter so much."""
    cells = [
        np.log([run.rate.value for run in arm.runs if run.rate]) for pair in pairs for arm in pair
    ]
    if len(changes) < len(pairs) or not vary(changes, cells):
        return None
    low, high = np.exp([changes.min(), changes.max()])
    return f"the effect depends on the other factors, from {low:.2f}x to {high:.2f}x"


def _confounded(pairs: Sequence[Pair]) -> str | None:
    """Return what else differs between the cells of all pairs: their nodes, or when they ran.

    One study runs its cells in random order.
    """
    logs = [
        (a.log, b.log) for base, arm in pairs for a, b in zip(base.runs, arm.runs, strict=False)
    ]
    if node := node_of_one_side(logs):
        return f"cells of one level ran on {node}, of the other they did not"
    passes = [(pass_of(a), pass_of(b)) for a, b in logs]
    if all(a and b and a[0] == b[0] for a, b in passes):
        return None
    begun = [[begun_at(run.log) for pair in pairs for run in pair[at].runs] for at in (0, 1)]
    if ran_apart(*begun):
        return "cells of one level ran at times of their own, and a machine may drift"
    return None
