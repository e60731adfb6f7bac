"""Verdicts as a sentence that can be repeated, and as the fields of a row that carries one."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.stats.contrast import ALLOWED, Contrast, Quantity
from analysis.stats.judge import HOLDS_ONE, Judgement, judge
from configs.terminal import printable

# Of a ratio, after the point.
MOST_DIGITS = 5
FIELDS = ("word", "ratio", "low", "high", "unit", "n", "comparisons", "verdict", "why")
_REPLICATES = {"round": "rounds", "pass": "passes", "repeat": "runs a side", "seed": "seeds a side"}


def verdict_fields(
    found: Judgement | None, quantity: Quantity, *, base: str, arm: str, prefix: str = ""
) -> dict[str, Any]:
    """Return the fields of a judgement, all None for a row that has none, such as a baseline."""
    if found is None:
        return dict.fromkeys(f"{prefix}{name}" for name in FIELDS)
    ratio = found.ratio
    values = (
        found.word,
        ratio.value if ratio else None,
        ratio.low if ratio else None,
        ratio.high if ratio else None,
        found.unit,
        found.n,
        found.comparisons,
        sentence(found, quantity, base=base, arm=arm),
        found.why,
    )
    return {f"{prefix}{name}": value for name, value in zip(FIELDS, values, strict=True)}


def against_first(
    contrasts: Sequence[Contrast], quantity: Quantity, *, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the fields of the verdict on each arm against the first, which has none itself.

    `contrasts` are of all arms but the first, in the order of their `names`.
    """
    judged = [None, *judge([(one, quantity) for one in contrasts])]
    return [
        verdict_fields(found, quantity, base=names[0], arm=name)
        for found, name in zip(judged, names, strict=True)
    ]


def verdict_lines(rows: Sequence[Mapping[str, Any]], *, prefix: str = "") -> list[str]:
    """Return the sentences of the rows that carry a judgement, fit for a terminal."""
    return [printable(row[f"{prefix}verdict"]) for row in rows if row.get(f"{prefix}word")]


def sentence(found: Judgement, quantity: Quantity, *, base: str, arm: str) -> str:
    """Return one sentence on an arm against the base, with what it rests on in brackets."""
    if found.word == "not compared":
        return f"{arm} is not compared with {base}: {found.why}"
    ratio = found.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return f"{arm} against {base} is undetermined: {found.why}"
    ends = between(ratio.low, ratio.high)
    basis = f"({', '.join(filter(None, [_basis(found), *found.remarks]))})"
    speed = quantity.name.startswith("speed")
    times = f"{factor(ratio.value, ratio.low, ratio.high)}x"
    if found.word == "undetermined":
        if ratio.low <= 1 <= ratio.high:
            range_ = f"{ends} times {'as fast' if speed else f'the {quantity.name}'}"
            why = "" if found.why == HOLDS_ONE else f"; {found.why}"
            return f"{arm} and {base} cannot be told apart: {range_} {basis}{why}"
        what = f"{times} as fast" if speed else f"{times} the {quantity.name}"
        return f"{arm} against {base} is undetermined: {what}, {ends}, but {found.why} {basis}"
    if found.word == "same":
        alike = "is as fast as" if speed else f"has the same {quantity.name} as"
        return f"{arm} {alike} {base} within {100 * quantity.margin:.3g} %, {ends} times {basis}"
    if speed:
        return f"{arm} is {times} as fast as {base}, {ends} {basis}"
    return f"{arm} has {times} the {quantity.name} of {base}, {ends} {basis}"


def _basis(found: Judgement) -> str:
    """Return what a verdict rests on: `3 seeds a side`, `these two runs, paired by step`."""
    if found.unit == "step":
        basis = "these two runs, paired by step"
    elif found.unit == "run":
        basis = "these two runs" if ALLOWED not in " ".join(found.remarks) else ""
    else:
        basis = f"{found.n} {_REPLICATES.get(found.unit, 'runs')}"
    count = f"{found.comparisons} comparisons" if found.comparisons > 1 else ""
    return ", ".join(filter(None, [basis, count]))


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
