"""Write a pattern for the kinds of lines that a log repeats: by their names, or by their values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.read.text.counts import (
    Dialect,
    counted_steps,
    counts_samples,
    meaning_of,
    nested_counts,
)
from analysis.read.text.fields import Field, Kind
from analysis.read.text.patterns import Format
from analysis.read.vocabulary import (
    is_evaluation,
    is_loss,
    key_of,
    preference,
)

# Beside losses, a value with such a name is their sum.
_WHOLE = frozenset(["total", "sum", "overall"])
_NUMBER = rb"[-+]?[\d.][\d.,]*(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf)\w*"
_CLOCK = rb"(?:\d{1,5} days?, ?)?\d{1,6}:\d\d(?::\d\d)?(?:\.\d+)?"


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
        steps: list[int | None] = [*counted_steps(kind, dialect)] or [None]
        found += [_inferred(kind, dialect, step, phases) for step in steps]
    return found


def _columns(
    kind: Kind, dialect: Dialect | None, *, is_whole: bool
) -> tuple[dict[int, tuple[str, float]], str | None]:
    """Return the column and factor of each field that is kept, and a doubt about the loss."""
    found: dict[int, tuple[str, float]] = {}
    for place, one in enumerate(kind.fields):
        column, factor = meaning_of(one, dialect)
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
        meaning_of(one, dialect)[0] in ("epoch", "images") for one in kind.fields
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
    if step is not None and not kind.fields[step].name and counts_samples(kind, step):
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
