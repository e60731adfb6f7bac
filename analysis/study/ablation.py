"""Estimate main effects and interactions from pairs of cells that differ in one factor."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from analysis.stats.contrast import Contrast, one_sample, refused
from analysis.stats.intervals import Floats
from analysis.stats.judge import Judgement, judge
from analysis.stats.mean import Mean
from analysis.study.cells import METRICS, Levels, StudyRuns
from analysis.verdict import verdict_fields

MIN_PAIRS = 3
PAIRS = ("pairs of cells",)
# The log of the change in each pair of cells, by the levels of the other factors.
Changes = dict[Levels, float]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one level of a factor against another, over pairs of cells."""

    metric: str
    factor: str
    before: str
    after: str
    changes: Changes
    contrast: Contrast


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """The ratio of an effect at two `levels` of another factor, `by`."""

    effect: Effect
    by: str
    levels: tuple[str, str]
    pairs: int
    contrast: Contrast


def effects(study: StudyRuns) -> list[Effect]:
    """Return the effect of every level against the factor's first one, for every metric."""
    return [
        found
        for metric in METRICS
        for index in range(len(study.factors))
        for found in _effects_of(study, index, metric)
        if found.changes
    ]


def _effects_of(study: StudyRuns, index: int, metric: str) -> Iterator[Effect]:
    slowed = study.overlap if metric == "images_per_s" else None
    before, *others = levels_of(study, index)
    for after in others:
        changes = _changes(study, index, (before, after), metric)
        yield Effect(
            metric=metric,
            factor=study.factors[index],
            before=before,
            after=after,
            changes=changes,
            contrast=refused(slowed) if slowed else _contrast(np.array([*changes.values()])),
        )


def levels_of(study: StudyRuns, index: int) -> list[str]:
    """Return a factor's levels: `false`, `null` and `none`, numbers ascending, others in order."""
    return sorted(dict.fromkeys(cell.levels[index] for cell in study.cells), key=_rank)


def _rank(level: str) -> tuple[int, float]:
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _changes(study: StudyRuns, index: int, levels: tuple[str, str], metric: str) -> Changes:
    """Return the change in each pair of cells that have equal levels in all factors but one."""
    sides: list[Changes] = [
        {
            _without(cell.levels, index): math.log(cell.measured[metric])
            for cell in study.cells
            if cell.levels[index] == level and metric in cell.measured
        }
        for level in levels
    ]
    return {rest: sides[1][rest] - sides[0][rest] for rest in sides[0] if rest in sides[1]}


def _without(levels: Levels, index: int) -> Levels:
    return levels[:index] + levels[index + 1 :]


def _contrast(changes: Floats) -> Contrast:
    """Return the mean change over pairs of cells, with an interval for `MIN_PAIRS` or more."""
    n = len(changes)
    if n >= MIN_PAIRS:
        return Contrast(mean=one_sample(changes), unit="repeat", n=n, is_claim=True, remarks=PAIRS)
    mean = Mean(value=float(changes.mean())) if n else None
    return Contrast(
        mean=mean, unit="repeat", n=n, why=f"{n} pairs of cells, fewer than {MIN_PAIRS}"
    )


def interactions(found: Sequence[Effect], study: StudyRuns) -> list[Interaction]:
    """Return how each effect changes between two levels of each other factor.

    From the first levels of both factors the two orders give one figure, which is returned for the
    factor that comes first.
    """
    result = []
    for effect in found:
        index = study.factors.index(effect.factor)
        for other, name in enumerate(study.factors):
            first, *_ = every = levels_of(study, other)
            for levels in combinations(every, 2) if other != index else ():
                # Of the levels without those of the effect, the place of the other factor.
                changes = _changes_of_change(effect.changes, other - (other > index), levels)
                is_duplicate = other < index and levels[0] == first
                if len(changes) and not is_duplicate:
                    result.append(
                        Interaction(
                            effect=effect,
                            by=name,
                            levels=levels,
                            pairs=len(changes),
                            contrast=_contrast(changes),
                        )
                    )
    return result


def _changes_of_change(changes: Changes, other: int, levels: tuple[str, str]) -> Floats:
    """Return differences of an effect between two levels of another factor, all else equal."""
    first, second = (
        {_without(rest, other): change for rest, change in changes.items() if rest[other] == level}
        for level in levels
    )
    return np.array([second[rest] - first[rest] for rest in first if rest in second])


def effect_rows(
    found: Sequence[Effect], changes: Sequence[Interaction]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row per effect and a row per interaction, whose verdicts share one error."""
    pairs = [(one.contrast, METRICS[one.metric]) for one in found]
    pairs += [(one.contrast, METRICS[one.effect.metric]) for one in changes]
    verdicts = judge(pairs)
    of_effects = zip(found, verdicts[: len(found)], strict=True)
    of_changes = zip(changes, verdicts[len(found) :], strict=True)
    return [_effect_row(*pair) for pair in of_effects], [_change_row(*pair) for pair in of_changes]


def _effect_row(found: Effect, verdict: Judgement) -> dict[str, Any]:
    base, arm = (f"{found.factor} {level}" for level in (found.before, found.after))
    return {
        "metric": found.metric,
        "factor": found.factor,
        "from": found.before,
        "to": found.after,
        "pairs": len(found.changes),
        **verdict_fields(verdict, METRICS[found.metric], base=base, arm=arm),
    }


def _change_row(found: Interaction, verdict: Judgement) -> dict[str, Any]:
    effect, (first, second) = found.effect, found.levels
    change = f"{effect.before} -> {effect.after}"
    base, arm = (f"{effect.factor} {change} at {found.by} {level}" for level in found.levels)
    return {
        "metric": effect.metric,
        "factor": effect.factor,
        "change": change,
        "by": found.by,
        "from": first,
        "to": second,
        "pairs": found.pairs,
        **verdict_fields(verdict, METRICS[effect.metric], base=base, arm=arm),
    }
