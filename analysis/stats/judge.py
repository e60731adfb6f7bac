"""Judge the contrasts of a table together: one word for each, and one error for all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats.intervals import Estimate
from analysis.stats.replicates import Contrast, Quantity, Word

HOLDS_ONE = "the interval holds 1"
ONE_RECIPE = "nothing known differs between them: runs of one recipe scatter, too"
BY_CHANCE = "one of so many comparisons may differ as much by chance"
LEVEL = 0.05
# Two runs differ by at most so many deviations of one of them in 95 of 100 cases.
OF_SEEDS = 1.96 * 2**0.5


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The word for one contrast among `comparisons` of a table, and why it is no other."""

    word: Word
    why: str | None
    ratio: Estimate | None
    comparisons: int


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the adjusted p-values of all comparisons of a table (Holm 1979)."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def judge(pairs: Sequence[tuple[Contrast, Quantity]]) -> list[Judgement]:
    """Return the verdict on each contrast of a quantity.

    All of them together are wrong with a probability of `LEVEL` (Holm).
    """
    tested = [one.mean for one, _ in pairs if one.mean and is_tested(one)]
    adjusted = iter(holm([mean.p_value() for mean in tested]))
    found = []
    for one, quantity in pairs:
        word, why = _word(one, quantity, next(adjusted) if is_tested(one) else 1.0)
        ratio = one.mean.ratio() if one.mean else None
        found.append(Judgement(word=word, why=why, ratio=ratio, comparisons=len(tested)))
    return found


def is_tested(one: Contrast) -> bool:
    """Whether a contrast has an interval, and is not of equal numbers."""
    if one.mean is None or one.mean.error is None:
        return False
    return one.mean.error > 0 or one.mean.value != 0


def _word(one: Contrast, quantity: Quantity, adjusted: float) -> tuple[Word, str | None]:
    if one.is_refused:
        return "not compared", one.why
    if one.mean is None or one.mean.error is None:
        return "undetermined", one.why or "too few records for an interval"
    agrees = all(mean.is_within(quantity.margin) for mean in (one.mean, *one.further))
    if agrees:
        return "same", None
    if adjusted >= LEVEL:
        holds_one = one.mean.p_value() >= LEVEL
        return "undetermined", one.why or (HOLDS_ONE if holds_one else BY_CHANCE)
    if one.is_claim:
        return quantity.word(one.mean.value), None
    if one.of_one_recipe or one.unsure:
        return "undetermined", one.unsure or ONE_RECIPE
    allowed = OF_SEEDS * quantity.seed_scatter
    ends = one.mean.estimate()
    assert ends.low is not None
    assert ends.high is not None
    if max(ends.low, -ends.high) <= max(allowed, math.log1p(quantity.margin) if allowed else 0.0):
        return "undetermined", "two seeds of one recipe may differ by as much"
    return "different", None
