"""Effects of factors, from pairs of cells that differ in one factor only."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Estimate, Floats
from analysis.stats.steady_state import SIGMA_OF_MAD
from analysis.study.cells import METRICS, CellRuns, Levels, StudyRuns

FEWEST_PAIRS = 3
UNLIKE_SIGMAS, UNLIKE_SHARE = 5.0, 0.1


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """Two cells that differ in one factor, and the log of the ratio of what they measured."""

    before: CellRuns
    after: CellRuns
    change: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one level of a factor does against another, as a ratio over `pairs`.

    `unlike` are pairs that disagree with their siblings, `influence` the largest change of the
    mean when one pair is left out, `censored` how many cells of either level ran out of memory.
    """

    metric: str
    factor: str
    before: str
    after: str
    pairs: tuple[CellPair, ...]
    ratio: Estimate
    median: float
    unlike: tuple[CellPair, ...]
    influence: float | None
    censored: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """How the ratio of one factor changes with another: the ratio of its ratios."""

    metric: str
    factor: str
    change: str
    by: str
    levels: tuple[str, str]
    pairs: int
    ratio: Estimate


def effects(study: StudyRuns) -> list[Effect]:
    """Every factor's levels against its first one, for every metric that was measured."""
    found = []
    for metric in METRICS:
        if any(metric in cell.measured for cell in study.cells):
            for index in range(len(study.factors)):
                base, *others = levels_of(study, index)
                found += [_effect(study, index, base, level, metric) for level in others]
    return [effect for effect in found if effect.pairs or any(effect.censored)]


def levels_of(study: StudyRuns, index: int) -> list[str]:
    """A factor's levels: `false`, `null` and `none`, numbers ascending, others as they came."""
    seen = dict.fromkeys(cell.levels[index] for cell in study.cells)
    return sorted(seen, key=_rank)


def _rank(level: str) -> tuple[int, float]:
    try:
        return 1, float(level)
    except ValueError:
        return (0 if level in ("false", "null", "none", "") else 2), 0.0


def _effect(study: StudyRuns, index: int, before: str, after: str, metric: str) -> Effect:
    pairs = tuple(_pairs(study.cells, index, before, after, metric))
    changes = np.array([pair.change for pair in pairs])
    mine = [cell for cell in study.cells if cell.out_of_memory]
    censored = [sum(cell.levels[index] == level for cell in mine) for level in (before, after)]
    return Effect(
        metric=metric,
        factor=study.factors[index],
        before=before,
        after=after,
        pairs=pairs,
        ratio=_mean(changes),
        median=math.exp(float(np.median(changes))) if len(pairs) else math.nan,
        unlike=tuple(pair for pair, odd in zip(pairs, _unlike(changes), strict=True) if odd),
        influence=_influence(changes),
        censored=(censored[0], censored[1]),
    )


def _pairs(
    cells: Iterable[CellRuns], index: int, before: str, after: str, metric: str
) -> Iterable[CellPair]:
    """Cells alike in all factors but one."""
    by_rest: dict[Levels, dict[str, CellRuns]] = {}
    for cell in cells:
        if metric in cell.measured:
            rest = cell.levels[:index] + cell.levels[index + 1 :]
            by_rest.setdefault(rest, {})[cell.levels[index]] = cell
    for found in by_rest.values():
        if before in found and after in found:
            a, b = found[before], found[after]
            change = math.log(b.measured[metric] / a.measured[metric])
            yield CellPair(before=a, after=b, change=change)


def _mean(changes: Floats) -> Estimate:
    """The geometric mean ratio with Student's interval over the pairs."""
    n = len(changes)
    if n == 0:
        return Estimate(value=math.nan)
    mean = float(changes.mean())
    if n < FEWEST_PAIRS:
        return Estimate(value=math.exp(mean))
    half = float(stdtrit(n - 1, 0.975)) * float(changes.std(ddof=1)) / math.sqrt(n)
    return Estimate(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def _unlike(changes: Floats) -> list[bool]:
    """Which pairs lie far from their siblings' median, by the siblings' own spread."""
    if len(changes) < FEWEST_PAIRS:
        return [False] * len(changes)
    away = np.abs(changes - np.median(changes))
    spread = SIGMA_OF_MAD * float(np.median(away))
    return [bool(far) for far in away > max(UNLIKE_SIGMAS * spread, UNLIKE_SHARE)]


def _influence(changes: Floats) -> float | None:
    n = len(changes)
    if n < FEWEST_PAIRS:
        return None
    without = (changes.sum() - changes) / (n - 1)
    worst = without[np.argmax(np.abs(without - changes.mean()))]
    return math.exp(float(worst - changes.mean())) - 1


def interactions(found: Sequence[Effect], study: StudyRuns) -> list[Interaction]:
    """For each effect, how it changes between two levels of each other factor.

    From the first level of either factor it is one figure, told with the factor that comes first.
    """
    told = []
    for effect in found:
        index = study.factors.index(effect.factor)
        for other, name in enumerate(study.factors):
            if other != index:
                first, *_ = every = levels_of(study, other)
                for levels in combinations(every, 2):
                    changes = _changes_of_change(effect.pairs, other, levels)
                    is_told = other < index and levels[0] == first
                    if len(changes) and not is_told:
                        told.append(_interaction(effect, name, levels, changes))
    return told


def _interaction(effect: Effect, by: str, levels: tuple[str, str], changes: Floats) -> Interaction:
    return Interaction(
        metric=effect.metric,
        factor=effect.factor,
        change=f"{effect.before} -> {effect.after}",
        by=by,
        levels=levels,
        pairs=len(changes),
        ratio=_mean(changes),
    )


def _changes_of_change(pairs: Sequence[CellPair], other: int, levels: tuple[str, str]) -> Floats:
    """Differences of a factor's effect between two levels of another, all else alike."""
    by_rest: dict[Levels, dict[str, float]] = {}
    for pair in pairs:
        at = pair.after.levels
        by_rest.setdefault(at[:other] + at[other + 1 :], {})[at[other]] = pair.change
    first, second = levels
    return np.array([c[second] - c[first] for c in by_rest.values() if first in c and second in c])


def effect_row(effect: Effect) -> dict[str, Any]:
    """One row, changes in percent; absent values are None."""
    ratio, n = effect.ratio, len(effect.pairs)
    return {
        "metric": effect.metric,
        "factor": effect.factor,
        "from": effect.before,
        "to": effect.after,
        "pairs": n,
        "percent": percent_change(ratio.value) if n else None,
        "low": percent_change(ratio.low),
        "high": percent_change(ratio.high),
        "median_percent": percent_change(effect.median) if n else None,
        "influence_percent": None if effect.influence is None else 100 * effect.influence,
        "unlike": ", ".join(pair.after.name for pair in effect.unlike) or None,
        "out_of_memory_from": effect.censored[0] or None,
        "out_of_memory_to": effect.censored[1] or None,
    }


def interaction_row(found: Interaction) -> dict[str, Any]:
    """One row, in percent."""
    return {
        "metric": found.metric,
        "factor": found.factor,
        "change": found.change,
        "by": found.by,
        "from": found.levels[0],
        "to": found.levels[1],
        "pairs": found.pairs,
        "percent": percent_change(found.ratio.value),
        "low": percent_change(found.ratio.low),
        "high": percent_change(found.ratio.high),
    }


def percent_change(ratio: float | None) -> float | None:
    """A ratio as a change in percent."""
    return None if ratio is None else 100 * (ratio - 1)
