"""Propose a `--pattern` for the lines that a log repeats most."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.epochs import regularity
from analysis.read.text.counts import nested_counts
from analysis.read.text.fields import Field, Kind
from analysis.read.text.values import STAMP, number
from analysis.read.vocabulary import is_evaluation, is_loss, meaning
from analysis.stats.intervals import Floats

# Of the lines that a proposal was written for it must read this share.
LEAST_READ = 0.5
FEWEST_LINES, LONGEST_SHAPE = 3, 160
_DECIMAL = r"[-+.\deEnaif]+"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A pattern that was tried: it reads `read` of the `lines` lines that look like `shape`."""

    pattern: str
    shape: str
    read: int
    lines: int


def propose(kinds: Sequence[Kind], lines: dict[int, str]) -> Proposal | None:
    """Return the pattern for the most repeated kind of line with a number that rises steadily."""
    rising = [(kind, step) for kind in kinds if len(kind.rows) >= FEWEST_LINES
              if (step := _rising(kind)) is not None]  # fmt: skip
    # Of lines that say the same, those with a time stamp have a clock.
    most = max((len(kind.rows) for kind, _ in rising), default=0)
    rising.sort(
        key=lambda pair: (-(len(pair[0].rows) > 0.8 * most), not _is_stamped(pair[0], lines))
    )
    for kind, step in rising:
        text = _pattern(kind, step)
        own = [lines[line] for line in kind.lines]
        read = sum(re.search(text, line) is not None for line in own)
        if read >= LEAST_READ * len(own):
            return Proposal(pattern=text, shape=own[len(own) // 2].strip()[:LONGEST_SHAPE],
                            read=read, lines=len(own))  # fmt: skip
    return None


def _is_stamped(kind: Kind, lines: dict[int, str]) -> bool:
    return STAMP.search(lines[kind.lines[0]].encode("latin-1", "replace")) is not None


def _values(kind: Kind, place: int) -> Floats:
    texts = [row[place].text for row in kind.rows if len(row) == len(kind.fields)]
    return np.array([number(text.encode("latin-1", "replace")) for text in texts])


def _rising(kind: Kind) -> int | None:
    """Return the count that begins again with another, else the first that rises by a constant."""
    inner = next(iter(nested_counts(kind, None)), None)
    if inner is not None:
        return inner
    for place, one in enumerate(kind.fields):
        if not one.is_count or place in kind.optional:
            continue
        values = _values(kind, place)
        known = values[np.isfinite(values)]
        if len(np.unique(known)) >= FEWEST_LINES and regularity(known) >= 0.5:
            return place
    return None


def _loss(kind: Kind, step: int) -> int | None:
    """Return the field that is named a loss, else the first decimal that does not only rise."""
    fields = [
        (place, one)
        for place, one in enumerate(kind.fields)
        if one.form == "number" and place != step and not is_evaluation(one.name)
    ]
    named = [place for place, one in fields if is_loss(one.name)]
    if named:
        return named[0]
    for place, one in fields:
        values = _values(kind, place)
        is_decimal = any("." in row[place].text for row in kind.rows if len(row) > place)
        known = meaning(one.name, one.unit)[0]
        if (
            is_decimal
            and (np.diff(values) < 0).any()
            and not known.endswith("_s")
            and known != "lr"
        ):
            return place
    return None


def _pattern(kind: Kind, step: int) -> str:
    loss = _loss(kind, step)
    outer = nested_counts(kind, None).get(step)
    is_epoch = "epoch" in meaning(kind.fields[step].name, "")[0].removesuffix("s").split("_")
    chosen: list[tuple[int, str]] = [(step, rf"(?P<{'epoch' if is_epoch else 'step'}>\d+)")]
    if outer is not None and not is_epoch:
        chosen.append((outer, r"(?P<epoch>\d+)"))
    if loss is not None:
        chosen.append((loss, rf"(?P<loss>{_DECIMAL})"))
    for place, one in enumerate(kind.fields):
        column = meaning(one.name, one.unit)[0]
        if place in (step, loss, outer) or column not in ("step_s", "duration_s", "elapsed_s"):
            continue
        if one.form == "number" and one.unit.strip() in ("ms", "s", "sec", "seconds"):
            unit = "ms" if one.unit.strip() == "ms" else "s"
            chosen.append((place, rf"(?P<{column.removesuffix('_s')}_{unit}>[.\d]+)"))
            break
    text = ""
    for place, group in sorted(chosen):
        text += (".*?" if text else "") + _context(kind.fields[place], is_first=not text) + group
    return text


def _context(one: Field, *, is_first: bool) -> str:
    words = re.split(r"\s+", one.context)
    text = r"\s*".join(re.escape(word).replace(r"\ ", " ") for word in words)
    if is_first and not re.search(r"\w", one.context):
        return rf"^\s*{text}" if not one.context.strip() else text
    return (r"\b" if re.match(r"\w", one.context) else "") + text
