"""Write a pattern for the kinds of lines that a log repeats: by their names, or by their values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.epochs import regularity
from analysis.read.text.fields import Field, Kind
from analysis.read.text.patterns import Format
from analysis.read.text.values import numbers
from analysis.read.vocabulary import (
    is_evaluation,
    is_loss,
    key_of,
    meaning,
    preference,
)
from analysis.stats.intervals import Floats

# What is counted over trainings, or beside them, and not within one.
_NO_EPOCH = re.compile(
    r"fold|run|trial|seed|exp|client|worker|rank|gpu|stage|phase|task|net|layer|model"
)
MOST_COUNTS = 6
LEAST_COUNTED = 10
# Beside losses, a value with such a name is their sum.
_WHOLE = frozenset(["total", "sum", "overall"])
_NUMBER = rb"[-+]?[\d.][\d.,]*(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf)\w*"
_CLOCK = rb"(?:\d{1,5} days?, ?)?\d{1,6}:\d\d(?::\d\d)?(?:\.\d+)?"
_WORDS_OF_STEP = frozenset(
    [
        "batch",
        "batches",
        "batch idx",
        "minibatch",
        "mini batch",
        "b",
        "episode",
        "episodes",
        "num episodes",
        "game",
        "train",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The meanings that a trainer gives to names that others use differently.

    `mark` is found in its lines; `names` gives columns with units by the words of a name, and by
    the unit after a colon for a value without a name.
    """

    name: str
    mark: re.Pattern[str]
    names: dict[str, str]
    axis: str = "step"


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """A format for a kind of line, and what stands in the lines: an axis, a loss, evaluations."""

    key: str
    format: Format
    kind: Kind
    has_axis: bool
    has_step: bool
    axis: str
    has_loss: bool
    has_evaluation: bool


def infer(
    kinds: Sequence[Kind], dialects: Iterable[Dialect], lines: dict[int, str]
) -> list[Inferred]:
    """Return a format for every way to read each kind of line."""
    found = []
    phases = {kind.head for kind in kinds if kind.head and is_evaluation(kind.head)}
    for kind in kinds:
        sample = lines[kind.lines[0]]
        dialect = next((one for one in dialects if one.mark.search(sample)), None)
        steps: list[int | None] = [*_steps_of(kind, dialect)] or [None]
        found += [_inferred(kind, dialect, step, phases) for step in steps]
    return found


def _steps_of(kind: Kind, dialect: Dialect | None) -> list[int]:
    """Return the fields that may count steps, preferred ones first."""
    ranked = []
    before = ""
    nested = nested_counts(kind, dialect)
    columns = [_meaning(one, dialect)[0] for one in kind.fields]
    has_loss = "loss" in columns and "epoch" not in columns
    for place, one in enumerate(kind.fields):
        column, key = _meaning(one, dialect)[0], key_of(one.name)
        if one.unit.strip() == "%" or not one.is_count or place in nested.values():
            pass
        elif place in nested and not one.name:
            ranked.append((55, place))
        elif column == "step":
            ranked.append((preference(one.name), place))
        elif one.is_count and (key in _WORDS_OF_STEP or column == "batch"):
            if one.total or len(_distinct(kind, place)) > 1:
                ranked.append((50, place))
        elif (
            one.is_count
            and one.total
            and (not one.name or key == "iters")
            and (
                before == "epoch" or place == 0 or one.unit.strip() in ("batches", "steps", "iters")
            )
        ):
            ranked.append((60, place))
        elif not is_evaluation(one.name) and (
            place in nested or (has_loss and _goes_on(kind, place))
        ):
            ranked.append((70, place))
        before = column
    return [place for _, place in sorted(ranked)][:3]


def nested_counts(kind: Kind, dialect: Dialect | None) -> dict[int, int]:
    """Return, by the counts that begin again when another rises by one, the other ones.

    So an epoch is known that is named otherwise: `iteration:3 step:20/500`.
    """
    if any(_meaning(one, dialect)[0] == "epoch" for one in kind.fields):
        return {}
    counts = [
        place for place, one in enumerate(kind.fields)
        if one.is_count and place not in kind.optional and one.unit.strip() != "%"
        and _meaning(one, dialect)[0] in ("", "step", "batch", key_of(one.name).replace(" ", "_"))
    ][:MOST_COUNTS]  # fmt: skip
    rows = [row for row in kind.rows if len(row) == len(kind.fields)]
    table = {place: numbers([row[place].text.encode() for row in rows]) for place in counts}
    found = {}
    for inner in counts:
        total = _totals(rows, inner)
        for outer in counts:
            is_other = outer == inner or _NO_EPOCH.search(key_of(kind.fields[outer].name))
            if not is_other and (
                _begins_again(table[inner], table[outer])
                or (kind.fields[inner].total and _multiplies(table[inner], table[outer], total))
            ):
                found[inner] = outer
    return {inner: outer for inner, outer in found.items() if inner not in found.values()}


def _begins_again(inner: Floats, outer: Floats) -> bool:
    """Whether a count falls where another rises by one, and nowhere else."""
    rises, falls = np.diff(outer), np.diff(inner) < 0
    changed = rises != 0
    if not changed.any() or len(np.unique(inner)) < 2 or 3 * changed.sum() > 2 * len(rises):
        return False
    is_one, falls_there = (rises[changed] == 1).mean() > 0.5, falls[changed].mean() > 0.6
    return bool(is_one and falls_there and falls[~changed].mean() < 0.02)


def _totals(rows: Sequence[Sequence[Field]], place: int) -> Floats:
    """Return the totals [n] that follow a field in the rows, NaN without one."""
    texts = [(row[place].total or "").strip(" \t/") for row in rows]
    return numbers([text.encode() for text in texts])


def _multiplies(inner: Floats, outer: Floats, total: Floats) -> bool:
    """Whether a count of `total` goes on by a constant through another: `iteration:2 step:26/174`.

    So printed at every hundredth step, the inner one need not fall where the other rises.
    """
    step = outer * total + inner
    is_within = (np.diff(inner) < 0).any() and len(step) > 3 and bool((inner <= total).all())
    return bool(is_within and regularity(step) >= 0.9)


def _goes_on(kind: Kind, place: int) -> bool:
    """Whether a count of any name rises by a constant in nearly all lines: `count: 50, loss: 2`."""
    texts = [row[place].text for row in kind.rows if len(row) == len(kind.fields)]
    values = numbers([text.encode() for text in texts])
    return len(np.unique(values)) >= LEAST_COUNTED and regularity(values) > 0.9


def _counts_samples(kind: Kind, place: int) -> bool:
    """Whether a count without a name begins at the size of a batch: 16, 1616, 3216 of 5011."""
    texts = [row[place].text for row in kind.rows if len(row) == len(kind.fields)]
    values = numbers([text.encode() for text in texts])
    rises = np.diff(values)[np.diff(values) > 0]
    if len(rises) < 2 or values.min() <= 1:
        return False
    spacing = float(np.median(rises))
    return spacing > values.min() and spacing % values.min() == 0


def _distinct(kind: Kind, place: int) -> set[str]:
    return {row[place].text for row in kind.rows if len(row) > place}


def _meaning(one: Field, dialect: Dialect | None) -> tuple[str, float]:
    """Return the column and the factor of a field; "" for what is no number of the training."""
    key = key_of(one.name)
    told = dialect.names.get(key or f":{one.unit.strip()}") if dialect else None
    if told is not None:
        factor = meaning("", one.unit)[1] if told.endswith("_s") else 1.0
        return (told.removesuffix("_ms") + "_s", 1e-3) if told.endswith("_ms") else (told, factor)
    if one.form == "clock":
        column = meaning(one.name, "")[0]
        is_clock = not one.name or column in ("duration_s", "elapsed_s", "epoch_s", "step_s")
        return (column if one.name and is_clock else "day_s" if is_clock else ""), 1.0
    if not one.name and not re.search(r"/|^ ?m?s", one.unit):
        return "", 1.0
    column, factor = meaning(one.name, one.unit)
    if column in ("images_per_s", "tokens_per_s") and "(" in one.name:
        return column, 1.0
    return column, factor


def _columns(
    kind: Kind, dialect: Dialect | None, *, is_whole: bool
) -> tuple[dict[int, tuple[str, float]], str | None]:
    """Return the column and factor of each field that is kept, and a doubt about the loss."""
    found: dict[int, tuple[str, float]] = {}
    for place, one in enumerate(kind.fields):
        column, factor = _meaning(one, dialect)
        own = [old for old, (other, _) in found.items() if other == column]
        if not column or column in ("step", "batch_idx"):
            continue
        if own and not (
            column == "loss" and preference(one.name) < preference(kind.fields[own[0]].name)
        ):
            continue
        for old in own:
            del found[old]
        found[place] = (column, factor)
    doubt = None
    if not any(column == "loss" for column, _ in found.values()) and is_whole:
        others = [
            place
            for place in found
            if is_loss(kind.fields[place].name) and not is_evaluation(kind.fields[place].name)
        ]
        whole = [place for place in found if key_of(kind.fields[place].name) in _WHOLE]
        if others:
            found[(whole or others)[0]] = ("loss", 1.0)
        if len(others) > 1 and not whole:
            names = [kind.fields[place].name for place in others[:4]]
            doubt = (
                f"two readings: {', '.join(names)}; none is called the whole, {names[0]!r} is shown"
            )
    return found, doubt


def _inferred(
    kind: Kind,
    dialect: Dialect | None,
    step: int | None,
    phases: set[str],
    *,
    is_alone: bool = False,
) -> Inferred:
    """Return a format of a kind; a loss of any name is the loss if the line stands for itself."""
    has_axis = step is not None or any(
        _meaning(one, dialect)[0] in ("epoch", "images") for one in kind.fields
    )
    columns, doubt = _columns(kind, dialect, is_whole=has_axis or is_alone)
    outer = nested_counts(kind, dialect).get(step) if step is not None else None
    if outer is not None:
        columns[outer] = ("epoch", 1.0)
    groups: dict[str, tuple[str, float]] = {}
    parts = []
    for place, one in enumerate(kind.fields):
        if place == step:
            part = _value(
                one,
                rb"(?:\d{1,15}-)?(?P<step>\d(?:\.\d+)?e\+\d+|[\d,]{1,18}(?![\d.]))",
                total=rb"(?P<of>\d{1,15})",
            )
        elif place in columns and len(groups) < 90:
            column, factor = columns[place]
            name = "epoch" if column == "epoch" else f"g{place}"
            if name != "epoch":
                groups[name] = (column, factor)
            value = _CLOCK if one.form == "clock" else _NUMBER
            part = _value(
                one,
                b"(?P<%b>%b)" % (name.encode(), value),
                total=rb"(?P<epochs>\d{1,9})" if name == "epoch" else rb"\d+",
            )
        else:
            continue
        parts.append(
            b"(?>%b)?" % part if place in kind.optional and place != step else b"(?>%b)" % part
        )
    names = {column for column, _ in columns.values()}
    rounded = step is not None and len(kind.fields) == 1 and kind.is_rounded
    outside = b""
    if phases and not (kind.head and is_evaluation(kind.head)):
        outside = rb"(?![^\n]{0,200}?(?<![\w/.-])(?:%b)(?![\w/.]))" % b"|".join(
            re.escape(word.encode("latin-1")) for word in sorted(phases)
        )
    axis = dialect.axis if dialect else "step"
    if step is not None and not kind.fields[step].name and _counts_samples(kind, step):
        axis = "sample"
    return Inferred(
        key=f"{kind.lines[0]} {step} {is_alone}",
        format=Format(
            name=dialect.name if dialect else "key: value",
            tokens=(b"",),
            pattern=re.compile(rb"\n" + outside + b"".join(parts)),
            groups=groups,
            axis=axis,
            uncertain=({"loss": doubt} if doubt else {})
            | ({"step": "rounded to a few digits, not known exactly"} if rounded else {}),
        ),
        kind=kind,
        has_axis=has_axis,
        has_step=step is not None,
        axis=axis if step is not None else "epoch" if "epoch" in names else "sample",
        has_loss="loss" in names,
        has_evaluation=any(is_evaluation(name) for name in names),
    )


def _value(one: Field, group: bytes, *, total: bytes) -> bytes:
    """Return the pattern of a field: the text before it wherever it stands, and its value."""
    context = _escaped(one.context)
    if re.match(r"\w", one.context):
        whole = rb"(?<![A-Za-z0-9_][ \t])" if one.is_whole else b""
        context = rb"(?<![A-Za-z0-9_])" + whole + context
    after = rb"[ \t]*/[ \t]*" + total if one.total else b""
    return rb"[^\n]*?" + context + group + after


def _escaped(text: str) -> bytes:
    """Return a pattern for a text in which blanks count for nothing before and after signs."""
    words = re.split(r"([ \t]+)", text)
    found = b""
    for place, word in enumerate(words):
        if not word.strip():
            beside = "".join(words[place - 1 : place][-1:] + words[place + 1 : place + 2])
            is_between = place and place + 1 < len(words) and words[place + 1] and words[place - 1]
            tight = is_between and words[place - 1][-1].isalnum() and words[place + 1][0].isalnum()
            found += (rb"[ \t]+" if tight else rb"[ \t]*") if word and beside is not None else b""
        else:
            found += re.escape(word.encode("latin-1"))
    return found + (
        rb"[ \t]*" if not text.endswith((" ", "\t")) and found[-1:] in b":=|[(" else b""
    )


def alone(one: Inferred) -> Inferred:
    """Return a kind of line of which a loss by any name is the loss."""
    return _inferred(one.kind, None, None, set(), is_alone=True)
