"""The numbers of a line with their names and units, and the kinds of lines that a log repeats."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from analysis.read.text.values import STAMP
from analysis.read.vocabulary import (
    ALIASES,
    column_of,
    is_evaluation,
    is_known,
    key_of,
    meaning,
)

LONGEST_LINE, MOST_FIELDS, MOST_KINDS = 2000, 60, 40
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d*+)?(?:[eE][-+]?\d++)?"
    r"|[-+]?\.\d+(?:[eE][-+]?\d+)?|[nN][aA][nN]|[-+]?[iI]nf(?:inity)?"
)
_UNIT = (
    r" ?(?:ms|msecs?|s|secs?|seconds?|mins?|minutes|h|hours)(?:/[a-z]+)?(?![\w/])"
    r"| ?(?:[A-Za-z]+ ?)?/ ?(?:s|sec|second)(?![\w/])|%|[A-Za-z]{1,6}(?:/[A-Za-z]{1,12})?(?!\w)"
    r"|(?:-?(?:st|nd|rd|th))?[ -](?:batch(?:es)?|steps?|iterations?|iters?|epochs?|updates?)(?!\w)"
)
# A number may follow a word without a blank only if the word counts: `epoch4`, `step100/174`.
_BEFORE = (
    r"(?:(?<![\w@])|(?<=\b[eE]poch)|(?<=\bEPOCH)|(?<=\b[sS]tep)|(?<=\b[iI]ter)|(?<=\b[bB]atch)"
    r"|(?<=\b[iI]teration))"
)
_VALUE = re.compile(
    rf"(?P<stamp>{STAMP.pattern.decode()})"
    r"|(?<![\w.:])(?P<clock>(?:\d{1,5} days?, ?)?\d{1,6}:\d\d(?::\d\d)?(?:\.\d+)?)(?![\w:])"
    rf"|(?:(?<=\[)\d+-(?=\d))?{_BEFORE}(?<!\d\.)(?<![\s\[]\d\d:)(?P<number>{_NUMBER})(?![.:_-]?\d)"
    rf"(?P<total>[ \t]*/[ \t]*\d+(?![\w.]))?(?P<unit>(?:{_UNIT})(?![ \t]*[:=]))?(?!\w)"
)
# What ends a name on its left, and signs between a name and its value.
_ENDS = re.compile(r"[,;:=|\[\]{}()<>\"'\t*#!]|  +| - |\. |->|=>|[^\x20-\x7e]+")
_UNIT_IN_NAME = re.compile(r"(.*?) ?[(\[]([A-Za-z/]{1,12})[)\]]")
_SIGNS = " \t:=<>([{\"'|#~→-"
_SOURCE = re.compile(r"\.(?:py|cpp|cc|cu|lua)$")
# Words between a name and its value: `loss so far is 5`.
_LINKS = re.compile(r"(?: (?:is|was|so far|of|equals|value|took|taken))+$")
_NOISE = frozenset(
    ["info", "debug", "warning", "root", "main", "at", "after", "the", "for", "in", "of", "with",
     "and", "has"]
)  # fmt: skip
# A count with such a word is of something else: the best epoch, the number of epochs.
_OTHER_COUNT = frozenset(
    ["best", "num", "number", "n", "max", "maximum", "per", "every", "remaining", "start", "end",
     "from", "warmup", "next", "resume", "resuming", "patience"]
)  # fmt: skip
# The loss that a sentence names before the epoch: `Loss at epoch 5 is 0.3`.
_LOSS_AT = re.compile(
    r"((?:[A-Za-z]+[ _])?loss) +(?:at|of|in|for|after|on)(?: the)?(?: end of)?(?: [A-Za-z]+)? *$",
    re.IGNORECASE,
)
_SAYS = re.compile(r"[ \t]*(?:is|was|=|:|->)[ \t]*")
_ORDINAL = re.compile(r"^-?(?:st|nd|rd|th)\b")
_COUNTED = re.compile(r" (epochs?|steps?|iterations?)\b")
_AXES = frozenset(["epoch", "epochs", "step", "steps", "iteration", "iterations", "iters"])
_MODIFIERS = frozenset(
    ["train", "training", "avg", "average", "mean", "total", "current", "batch", "epoch", "running",
     "global", "overall", "step", "last"]
)  # fmt: skip
_QUALIFIER = re.compile(
    r"(?<![\w/.-])(?:(train|training)|val|valid|validation|dev|eval|evaluation|test|testing"
    r"|validating|evaluating)(?![\w/.])", re.IGNORECASE
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Field:
    """One value of a line: its name and unit as printed, and the text of the line before it.

    `context` is the part of that text by which the field is found again; if `is_whole`, a sign
    stands before it, and no further word of the name. A `total` follows a slash.
    """

    name: str
    unit: str
    context: str
    text: str
    form: str
    total: str | None = None
    is_whole: bool = False

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """The key of the field among those of its kind of line."""
        named = key_of(self.name) or " ".join(self.context.split())
        return named, self.form, self.unit.strip(), self.total is not None

    @property
    def is_count(self) -> bool:
        """Whether the value is a whole number, perhaps one rounded to a few digits: `1.58e+04`."""
        return self.form == "number" and bool(re.fullmatch(r"[\d,]+|\d(?:\.\d+)?e\+\d+", self.text))


@dataclass(kw_only=True)
class Kind:
    """Lines with the same fields; `rows` holds the fields of each line of the sample."""

    fields: list[Field]
    head: str | None = None
    optional: set[int] = field(default_factory=set)
    rows: list[list[Field]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    @property
    def is_rounded(self) -> bool:
        """Whether some whole numbers are rounded to a few digits."""
        return any("e+" in one.text for row in self.rows for one in row if one.is_count)


def fields_of(line: str) -> tuple[list[Field], str | None]:
    """Return the values of a line, in order, and the word before them that names its phase.

    `[VAL] step 5 loss 2` and `Train: loss 3 | Val: loss 2`: a phase is that of all values up to
    the next one.
    """
    found, last, phase, head, told = list[Field](), 0, "", None, ""
    for match in _VALUE.finditer(line[:LONGEST_LINE]):
        gap, last = line[last : match.start()], match.end()
        if match["stamp"]:
            continue
        name, unit, start = _named(gap)
        if (word := _QUALIFIER.fullmatch(unit)) is not None:
            phase, unit = "" if word[1] else unit.lower(), ""
            head = word[0] if not found else head
        for word in _QUALIFIER.finditer(gap[:start]):
            phase = "" if word[1] else word[0].lower()
            start = word.start()
            head = word[0] if not found else head
        unit = unit or (match["unit"] or "")
        if key_of(_ORDINAL.sub("", unit)) in _AXES and (
            not name or name.split()[-1].lower() in _NOISE
        ):
            name, unit = _ORDINAL.sub("", unit).strip(" -"), ""
        if re.search(r"(?i:after)$", name) and (word := _COUNTED.match(line, last)):
            name, last = word[1], word.end()
        if not name and told and _SAYS.fullmatch(gap):
            name = told
        sentence = _LOSS_AT.search(gap.rstrip(_SIGNS))
        told = sentence[1] if sentence and key_of(name) in _AXES else ""
        if gap.endswith("#") or _SOURCE.search(name):
            # The number of an output or of a source line.
            word = _QUALIFIER.match(name)
            phase = phase if word is None else "" if word[1] else word[0].lower()
            continue
        if phase and not is_evaluation(name) and _takes_phase(name):
            name = f"{phase} {name}"
        found.append(
            Field(
                name=name,
                unit=unit,
                context=gap[start:],
                text=match["clock"] or match["number"],
                form="clock" if match["clock"] else "number",
                total=match["total"],
                is_whole=re.search(r"[^\w\s]\s*$", gap[:start]) is not None,
            )
        )
        if len(found) == MOST_FIELDS:
            break
    return found, head


@lru_cache(maxsize=4096)
def _named(gap: str) -> tuple[str, str, int]:
    """Return the name at the end of the text before a value, its unit, and where it begins."""
    head = gap.rstrip(_SIGNS)
    unit = ""
    if match := _UNIT_IN_NAME.fullmatch(head[-80:]):
        head, unit = head[: -len(match[2]) - 2].rstrip(), match[2]
    head = _LINKS.sub("", head)
    ends = [end.end() for end in _ENDS.finditer(head)]
    start = ends[-1] if ends else 0
    words = head[start:].split()
    kept = words[-5:]
    while len(kept) > 1 and kept[0].lower().strip("-.") in _NOISE | {""}:
        kept = kept[1:]
    for first in range(len(kept)):
        rest, before = " ".join(kept[first:]), [word.lower() for word in kept[:first]]
        is_sentence = bool(before) and before[-1] in _NOISE
        if not is_known(rest) or (_OTHER_COUNT & set(before) and not is_sentence):
            continue
        if is_sentence or not (_is_shared(rest) and set(before) - _MODIFIERS - _NOISE):
            kept = kept[first:] if is_sentence or not set(before) & _MODIFIERS else kept
            break
    name = " ".join(kept) if kept and re.search(r"[A-Za-z]", " ".join(kept)) else ""
    if not name:
        return "", unit, max(len(gap) - 12, 0)
    return name, unit, head.rfind(kept[0], 0, len(head) - len(" ".join(kept)) + len(kept[0]))


def _is_shared(name: str) -> bool:
    """Whether other quantities have this name with a word in front: `box loss`, `data time`."""
    return column_of(name) in ("loss", "lr", "batch", "images", "tokens", "time", "grad_norm")


def _takes_phase(name: str) -> bool:
    column = column_of(name)
    return column == "loss" or (column not in ALIASES and not meaning(name, "")[0].endswith("_s"))


def kinds_of(lines: Iterable[tuple[int, str]]) -> list[Kind]:
    """Return the kinds of the numbered lines with a value, those with the most lines first.

    A kind whose fields are some of another's, in the same order, is one with it.
    """
    found: dict[tuple[object, ...], Kind] = {}
    for number, line in lines:
        fields, head = fields_of(line)
        if fields:
            key = (head, *(one.key for one in fields))
            kind = found.setdefault(key, Kind(fields=fields, head=head))
            kind.rows.append(fields)
            kind.lines.append(number)
    kinds = sorted(found.values(), key=lambda kind: -len(kind.rows))[: 4 * MOST_KINDS]
    merged: list[Kind] = []
    for kind in kinds:
        if not any(_merge(one, kind) for one in merged):
            merged.append(kind)
    return sorted(merged, key=lambda kind: -len(kind.rows))[:MOST_KINDS]


def _merge(kind: Kind, other: Kind) -> bool:
    """Add the lines of another kind to a kind, if one's fields are some of the other's."""
    if kind.head != other.head:
        return False
    longer, shorter = sorted((kind, other), key=lambda one: -len(one.fields))
    places = _places(longer.fields, shorter.fields)
    if places is None or 2 * len(places) < len(longer.fields):
        return False
    missing = set(range(len(longer.fields))) - set(places)
    if longer is kind:
        kind.optional |= missing
    else:
        kind.optional = missing | {places[old] for old in kind.optional}
        kind.fields = longer.fields
    kind.rows += other.rows
    kind.lines += other.lines
    return True


def _places(longer: Sequence[Field], shorter: Sequence[Field]) -> list[int] | None:
    """Return where the fields of a shorter line stand in a longer one, None if they do not."""
    places, at = [], 0
    for one in shorter:
        while at < len(longer) and longer[at].key != one.key:
            at += 1
        if at == len(longer):
            return None
        places.append(at)
        at += 1
    return places
