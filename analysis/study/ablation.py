"""Estimate main effects and interactions from pairs of cells that differ in one factor."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from analysis.stats.contrast import Contrast, one_sample, refused
from analysis.stats.intervals import Estimate, Floats
from analysis.stats.judge import Judgement, judge
from analysis.stats.summary import SIGMA_OF_MAD, Mean
from analysis.study.cells import METRICS, CellRuns, Levels, StudyRuns
from analysis.verdict import verdict_fields

MIN_PAIRS = 3
PAIRS = ("pairs of cells",)
OUTLIER_SIGMAS, OUTLIER_SHARE = 5.0, 0.1


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """Two cells that differ in one factor, and the log of the ratio of their values."""

    before: CellRuns
    after: CellRuns
    change: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of one level of a factor against another, as a ratio over `pairs`.

    `unlike` are the pairs that are outliers among their siblings, `influence` is the largest change
    of the mean by leaving one pair out, and `censored` counts the cells of either level that ran
    out of memory.
    """

    metric: str
    factor: str
    before: str
    after: str
    pairs: tuple[CellPair, ...]
    contrast: Contrast
    median: float
    unlike: tuple[CellPair, ...]
    influence: float | None
    censored: tuple[int, int]

    @property
    def ratio(self) -> Estimate | None:
        """The geometric mean over the pairs."""
        mean = self.contrast.mean
        return mean.estimate().map(math.exp) if mean else None


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """The ratio of one factor's effects at two levels of another."""

    metric: str
    factor: str
    change: str
    by: str
    levels: tuple[str, str]
    pairs: int
    contrast: Contrast


def effects(study: StudyRuns) -> list[Effect]:
    """Return the effect of every level against the factor's first one, for every metric."""
    found = []
    for metric in METRICS:
        if any(metric in cell.measured for cell in study.cells):
            for index in range(len(study.factors)):
                base, *others = levels_of(study, index)
                found += [_effect(study, index, base, level, metric) for level in others]
    return [effect for effect in found if effect.pairs or any(effect.censored)]


def levels_of(study: StudyRuns, index: int) -> list[str]:
    """Return a factor's levels: `false`, `null` and `none`, numbers ascending, others in order."""
    return sorted(dict.fromkeys(cell.levels[index] for cell in study.cells), key=_rank)


def _rank(level: str) -> tuple[int, float]:
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _effect(study: StudyRuns, index: int, before: str, after: str, metric: str) -> Effect:
    pairs = tuple(_pairs(study.cells, index, before, after, metric))
    changes = np.array([pair.change for pair in pairs])
    slowed = study.overlap if metric == "images_per_s" else None
    out_of_memory = [cell.levels[index] for cell in study.cells if cell.out_of_memory]
    return Effect(
        metric=metric,
        factor=study.factors[index],
        before=before,
        after=after,
        pairs=pairs,
        contrast=refused(slowed) if slowed else _contrast(changes),
        median=math.exp(float(np.median(changes))) if len(pairs) else math.nan,
        unlike=tuple(pair for pair, odd in zip(pairs, _outliers(changes), strict=True) if odd),
        influence=_influence(changes),
        censored=(out_of_memory.count(before), out_of_memory.count(after)),
    )


def _pairs(
    cells: Sequence[CellRuns], index: int, before: str, after: str, metric: str
) -> Iterator[CellPair]:
    """Yield pairs of cells that have equal levels in all factors but one."""
    by_rest: dict[Levels, dict[str, CellRuns]] = {}
    for cell in cells:
        if metric in cell.measured:
            by_rest.setdefault(other_levels(cell.levels, index), {})[cell.levels[index]] = cell
    for found in by_rest.values():
        if before in found and after in found:
            a, b = found[before], found[after]
            change = math.log(b.measured[metric] / a.measured[metric])
            yield CellPair(before=a, after=b, change=change)


def other_levels(levels: Levels, index: int) -> Levels:
    """Return the levels of all factors but one."""
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


def _outliers(changes: Floats) -> list[bool]:
    """Return which changes lie far from their median, by the spread of all of them."""
    if len(changes) < MIN_PAIRS:
        return [False] * len(changes)
    away = np.abs(changes - np.median(changes))
    spread = SIGMA_OF_MAD * float(np.median(away))
    return [bool(far) for far in away > max(OUTLIER_SIGMAS * spread, OUTLIER_SHARE)]


def _influence(changes: Floats) -> float | None:
    n = len(changes)
    if n < MIN_PAIRS:
        return None
    left_out = (changes.sum() - changes) / (n - 1)
    worst = left_out[np.argmax(np.abs(left_out - changes.mean()))]
    return math.exp(float(worst - changes.mean())) - 1


def interactions(found: Sequence[Effect], study: StudyRuns) -> list[Interaction]:
    """Return how each effect changes between two levels of each other factor.

    From the first levels of both factors the two orders give one figure, which is returned for the
    factor that comes first.
    """
    result = []
    for effect in found:
        index = study.factors.index(effect.factor)
        for other, name in enumerate(study.factors):
            if other == index:
                continue
            first, *_ = every = levels_of(study, other)
            for levels in combinations(every, 2):
                changes = _changes_of_change(effect.pairs, other, levels)
                is_duplicate = other < index and levels[0] == first
                if len(changes) and not is_duplicate:
                    result.append(
                        Interaction(
                            metric=effect.metric,
                            factor=effect.factor,
                            change=f"{effect.before} -> {effect.after}",
                            by=name,
                            levels=levels,
                            pairs=len(changes),
                            contrast=_contrast(changes),
                        )
                    )
    return result


def _changes_of_change(pairs: Sequence[CellPair], other: int, levels: tuple[str, str]) -> Floats:
    """Return differences of an effect between two levels of another factor, all else equal."""
    by_rest: dict[Levels, dict[str, float]] = {}
    for pair in pairs:
        at = pair.after.levels
        by_rest.setdefault(other_levels(at, other), {})[at[other]] = pair.change
    first, second = levels
    return np.array([c[second] - c[first] for c in by_rest.values() if first in c and second in c])


def effect_rows(
    found: Sequence[Effect], changes: Sequence[Interaction]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row per effect and a row per interaction, whose verdicts share one error."""
    pairs = [(one.contrast, METRICS[one.metric]) for one in found]
    pairs += [(one.contrast, METRICS[one.metric]) for one in changes]
    verdicts = judge(pairs)
    effects = zip(found, verdicts[: len(found)], strict=True)
    rest = zip(changes, verdicts[len(found) :], strict=True)
    return [_effect_row(*pair) for pair in effects], [_interaction_row(*pair) for pair in rest]


def _effect_row(effect: Effect, verdict: Judgement) -> dict[str, Any]:
    """Return one row with changes in percent; absent values are None."""
    base, arm = (f"{effect.factor} {level}" for level in (effect.before, effect.after))
    return {
        "metric": effect.metric,
        "factor": effect.factor,
        "from": effect.before,
        "to": effect.after,
        "pairs": len(effect.pairs),
        **_verdict_fields(verdict, effect.metric, base, arm),
        "median_percent": 100 * (effect.median - 1) if effect.pairs else None,
        "influence_percent": None if effect.influence is None else 100 * effect.influence,
        "unlike": ", ".join(pair.after.name for pair in effect.unlike) or None,
        "out_of_memory_from": effect.censored[0] or None,
        "out_of_memory_to": effect.censored[1] or None,
    }


def _interaction_row(found: Interaction, verdict: Judgement) -> dict[str, Any]:
    base, arm = (f"{found.factor} {found.change} at {found.by} {level}" for level in found.levels)
    return {
        "metric": found.metric,
        "factor": found.factor,
        "change": found.change,
        "by": found.by,
        "from": found.levels[0],
        "to": found.levels[1],
        "pairs": found.pairs,
        **_verdict_fields(verdict, found.metric, base, arm),
    }


def _verdict_fields(verdict: Judgement, metric: str, base: str, arm: str) -> dict[str, Any]:
    """Return the change in percent, then the fields of the verdict."""
    fields = verdict_fields(verdict, METRICS[metric], base=base, arm=arm)
    ratio = fields["ratio"]
    return {"percent": None if ratio is None else 100 * (ratio - 1)} | fields
