"""Verdicts as a sentence that can be repeated, and as the fields of a row that carries one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats.judge import HOLDS_ONE, Judgement, judge
from analysis.stats.replicates import ALLOWED, Contrast, Quantity
from configs.terminal import printable

# Of a ratio, after the point.
MOST_DIGITS = 5
FIELDS = ("word", "ratio", "low", "high", "unit", "n", "comparisons", "verdict", "why")
_REPLICATES = {
    "round": "rounds",
    "pass": "passes",
    "repeat": "runs a side",
    "seed": "seeds a side",
    "node": "nodes that both used",
    "pair": "pairs of cells",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The contrast of an arm with its base in one quantity, both by name."""

    base: str
    arm: str
    quantity: Quantity
    contrast: Contrast

    def fields(self, judged: Judgement) -> dict[str, Any]:
        """Return the judgement of the contrast as fields of a row."""
        ratio = judged.ratio
        return {
            "word": judged.word,
            "ratio": ratio.value if ratio else None,
            "low": ratio.low if ratio else None,
            "high": ratio.high if ratio else None,
            "unit": self.contrast.unit,
            "n": self.contrast.n,
            "comparisons": judged.comparisons,
            "verdict": self._sentence(judged),
            "why": judged.why,
        }

    def _sentence(self, judged: Judgement) -> str:
        """Return one sentence on the arm against its base, with what it rests on in brackets."""
        base, arm, quantity, ratio = self.base, self.arm, self.quantity, judged.ratio
        if judged.word == "not compared":
            return f"{arm} is not compared with {base} in {quantity.name}: {judged.why}"
        if ratio is None or ratio.low is None or ratio.high is None:
            return f"{arm} against {base} is undetermined in {quantity.name}: {judged.why}"
        ends = between(ratio.low, ratio.high)
        parts = _basis(self.contrast, judged.comparisons)
        basis = f"({', '.join(part for part in parts if part != judged.why)})"
        as_fast = f"as fast{quantity.name.removeprefix('speed')}"  # to the target
        of_base = as_fast if quantity.is_speed else f"the {quantity.name}"
        times = f"{factor(ratio.value, ratio.low, ratio.high)}x {of_base}"
        if judged.word == "undetermined":
            if ratio.low <= 1 <= ratio.high:
                why = "" if judged.why == HOLDS_ONE else f"; {judged.why}"
                range_ = f"{ends} times {of_base} {basis}"
                return f"{arm} and {base} cannot be told apart: {range_}{why}"
            range_ = f"{times}, {ends}"
            return f"{arm} against {base} is undetermined: {range_}, but {judged.why} {basis}"
        if judged.word == "same":
            alike = f"is {as_fast} as" if quantity.is_speed else f"has the same {quantity.name} as"
            within = f"within {100 * quantity.margin:.3g} %"
            return f"{arm} {alike} {base} {within}, {ends} times {basis}"
        if quantity.is_speed:
            return f"{arm} is {times} as {base}, {ends} {basis}"
        return f"{arm} has {times} of {base}, {ends} {basis}"


def verdicts(comparisons: Sequence[Comparison | None]) -> list[dict[str, Any]]:
    """Return the fields of the verdict on each comparison of a table; all share one error.

    Those of None, which stands for a baseline, are None.
    """
    judged = iter(judge([(one.contrast, one.quantity) for one in comparisons if one]))
    return [one.fields(next(judged)) if one else dict.fromkeys(FIELDS) for one in comparisons]


def against_first(
    contrasts: Sequence[Contrast], quantity: Quantity, *, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the fields of the verdict on each arm against the first, which has none itself.

    `contrasts` are of all arms but the first, in the order of their `names`.
    """
    made = [
        Comparison(base=names[0], arm=name, quantity=quantity, contrast=one)
        for one, name in zip(contrasts, names[1:], strict=True)
    ]
    return verdicts([None, *made])


def verdict_lines(rows: Sequence[Mapping[str, Any]], *, prefix: str = "") -> list[str]:
    """Return the sentences of the rows that carry a judgement, fit for a terminal."""
    return [printable(row[f"{prefix}verdict"]) for row in rows if row.get(f"{prefix}word")]


def _basis(contrast: Contrast, comparisons: int) -> Iterator[str]:
    """Yield what a verdict rests on: `3 seeds a side`, `these two runs, paired by step`."""
    if contrast.unit == "step":
        yield "these two runs, paired by step"
    elif contrast.unit != "run":
        yield _replicates(contrast)
    elif ALLOWED not in " ".join(contrast.remarks):
        yield "these two runs"
    if comparisons > 1:
        yield f"{comparisons} comparisons"
    yield from contrast.remarks


def _replicates(contrast: Contrast) -> str:
    """Return `3 seeds a side`, `3 v 7 seeds` or `3 nodes that both used`."""
    words = _REPLICATES.get(contrast.unit, "runs")
    if contrast.sides is None:
        return f"{contrast.n} {words}"
    below, above = contrast.sides
    noun = words.split()[0]
    return f"{below} {noun} a side" if below == above else f"{below} v {above} {noun}"


def factor(value: float, low: float | None, high: float | None) -> str:
    """Return a ratio with as many digits as show its interval's width and its side of 1."""
    return f"{value:.{_digits(low, high)}f}"


def between(low: float, high: float) -> str:
    """Return `1.82 to 1.85`."""
    digits = _digits(low, high)
    return f"{low:.{digits}f} to {high:.{digits}f}"


def ratio_text(value: float | None, low: float | None, high: float | None) -> str:
    """Return `1.93x [1.90, 1.96]`, or nothing if it is unknown."""
    if value is None:
        return ""
    text = f"{factor(value, low, high)}x"
    if low is None or high is None:
        return text
    digits = _digits(low, high)
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def _digits(low: float | None, high: float | None) -> int:
    digits = 2
    while digits < MOST_DIGITS and low and high and _is_hidden(low, high, digits):
        digits += 1
    return digits


def _is_hidden(low: float, high: float, digits: int) -> bool:
    """Return whether rounding leaves an interval no width, or moves an end onto 1."""
    ends = round(low, digits), round(high, digits)
    return low < high and (ends[0] == ends[1] or ends[0] <= 1 < low or high < 1 <= ends[1])
