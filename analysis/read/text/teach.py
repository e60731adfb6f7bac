"""Say what an unread text is, and propose a `--pattern` for the lines that it repeats most."""

import re
import shlex
from collections.abc import Sequence

import numpy as np

from analysis.read.columns import losses_by_other_names
from analysis.read.epochs import regularity
from analysis.read.text.counts import counts_of
from analysis.read.text.fields import Field
from analysis.read.text.kinds import Kind
from analysis.read.vocabulary import meaning

# Of the lines that a pattern is written for it must read this share.
LEAST_READ = 0.5
FEWEST_LINES, LONGEST_SHAPE = 3, 160


def unread_text(kinds: Sequence[Kind]) -> str:
    """Return a sentence on a text's most repeated line, with a pattern that was tried on it."""
    if not kinds:
        return "text of an unknown format, without a number"
    for kind in kinds:
        step = _rising(kind)
        if step is None or kind.count < FEWEST_LINES:
            continue
        pattern = _pattern(kind, step)
        counts = {shape.sample: sum(map(len, shape.parts)) for shape in kind.shapes}
        read = sum(count for line, count in counts.items() if re.search(pattern, line))
        if read >= LEAST_READ * kind.count:
            return (
                f"text of an unknown format. {kind.count} lines are like {_shown(kind)}; this "
                f"reads {read} of them: --pattern {shlex.quote(pattern)}"
            )
    return (
        f"text of an unknown format: the commonest line with a number is {_shown(kinds[0])} "
        f"({kinds[0].count} times), and no number in it rises steadily. If it is a log of a "
        "training, name its numbers: --pattern 'step (?P<step>\\d+).*?loss (?P<loss>\\S+)'"
    )


def _shown(kind: Kind) -> str:
    shown = kind.sample.strip()[:LONGEST_SHAPE]
    return repr(shown.encode("latin-1").decode("utf-8", "ignore"))


def _rising(kind: Kind) -> str | None:
    """Return the key of the first count that rises by a constant in most lines."""
    for key in counts_of(kind):
        known = kind.rows[key][np.isfinite(kind.rows[key])]
        if len(np.unique(known)) >= FEWEST_LINES and regularity(known) >= 0.5:
            return key
    return None


def _pattern(kind: Kind, step: str) -> str:
    """Return a pattern for a count and the loss, if a number is named as one."""
    count = kind.fields[step]
    names = {one.name: key for key, one in kind.fields.items() if key in kind.decimals}
    renamed, _ = losses_by_other_names({name: kind.rows[key] for name, key in names.items()})
    loss = next((names[name] for name, column in renamed.items() if column == "loss"), None)
    is_epoch = meaning(count.name, count.unit)[0] == "epoch"
    groups = {step: rf"(?P<{'epoch' if is_epoch else 'step'}>\d+)"}
    if loss is not None:
        groups[loss] = r"(?P<loss>[-+.,\deEnaif]+)"
    text = ""
    for key, one in kind.fields.items():
        if key in groups:
            text += (".*?" if text else "") + _context(one, is_first=not text) + groups[key]
    return text


def _context(one: Field, *, is_first: bool) -> str:
    words = one.context.split()
    text = r"\s*".join(re.escape(word) for word in ["", *words, ""])
    if is_first and not words:
        return r"^\s*"
    return (r"\b" if re.match(r"\w", one.context) else "") + text.removeprefix(r"\s*")
