"""Propose a `--pattern` for the lines that a log repeats most."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.epochs import regularity
from analysis.read.text.counts import counts_of
from analysis.read.text.fields import Field
from analysis.read.text.kinds import Kind
from analysis.read.vocabulary import is_evaluation, is_loss, meaning, names_no_quantity

# Of the lines that a proposal was written for it must read this share.
LEAST_READ = 0.5
FEWEST_LINES, LONGEST_SHAPE = 3, 160


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A pattern that was tried: it reads `read` of the `lines` lines that look like `shape`."""

    pattern: str
    shape: str
    read: int
    lines: int


def propose(kinds: Sequence[Kind]) -> Proposal | None:
    """Return the pattern for the most repeated kind of line with a number that rises steadily."""
    for kind in kinds:
        step = _rising(kind)
        if step is None or kind.count < FEWEST_LINES:
            continue
        text = _pattern(kind, step)
        counts = {shape.sample: sum(map(len, shape.parts)) for shape in kind.shapes}
        read = sum(count for line, count in counts.items() if re.search(text, line))
        if read >= LEAST_READ * kind.count:
            shape = kind.sample.strip()[:LONGEST_SHAPE]
            return Proposal(pattern=text, shape=shape, read=read, lines=kind.count)
    return None


def _rising(kind: Kind) -> str | None:
    """Return the key of the first count that rises by a constant in most lines."""
    for key in counts_of(kind):
        known = kind.rows[key][np.isfinite(kind.rows[key])]
        if len(np.unique(known)) >= FEWEST_LINES and regularity(known) >= 0.5:
            return key
    return None


def _loss(kind: Kind, step: str) -> str | None:
    """Return the key of a loss by its name, else of the first decimal that does not only rise.

    Without a name for it, or with one that only says that it is of training, it may be the loss.
    """
    fields = {
        key: one for key, one in kind.fields.items()
        if one.form == "number" and key != step and not is_evaluation(one.name)
    }  # fmt: skip
    named = [key for key, one in fields.items() if is_loss(one.name)]
    decimals = [
        key for key, one in fields.items()
        if key in kind.decimals and (np.diff(kind.rows[key]) < 0).any()
        and names_no_quantity(one.name) and names_no_quantity(one.context)
        and not meaning(one.name, one.unit)[0].endswith("_s")
    ]  # fmt: skip
    # Of several decimals one without a name may be anything.
    decimals = [key for key in decimals if fields[key].name or len(decimals) == 1]
    return next(iter([*named, *decimals]), None)


def _pattern(kind: Kind, step: str) -> str:
    count = kind.fields[step]
    # `Training 3 Epoch` counts epochs as `epoch 3` does.
    after = rf"{_context(count, is_first=True)}\d+\s+epoch"
    is_epoch = meaning(count.name, count.unit)[0] == "epoch" or re.search(
        after, kind.sample, re.IGNORECASE
    )
    loss = _loss(kind, step)
    is_table = not count.name and count.total is not None and loss is None
    groups = {step: rf"(?P<{'epoch' if is_epoch or is_table else 'step'}>\d+)"}
    if loss is not None:
        groups[loss] = r"(?P<loss>[-+.\deEnaif]+)"
    text = ""
    for key, one in kind.fields.items():
        if key in groups:
            text += (".*?" if text else "") + _context(one, is_first=not text) + groups[key]
    return text


def _context(one: Field, *, is_first: bool) -> str:
    words = re.split(r"\s+", one.context)
    text = r"\s*".join(re.escape(word).replace(r"\ ", " ") for word in words)
    if is_first and not re.search(r"\w", one.context):
        return rf"^\s*{text}" if not one.context.strip() else text
    return (r"\b" if re.match(r"\w", one.context) else "") + text
