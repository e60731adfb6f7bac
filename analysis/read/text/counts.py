"""Which numbers of a kind of line count steps, epochs or samples, by their names and values."""

import re

import numpy as np

from analysis.read.columns import distinct
from analysis.read.epochs import regularity
from analysis.read.text.dialects import Dialect, meaning_of
from analysis.read.text.fields import BAR_STEP
from analysis.read.text.kinds import Kind
from analysis.read.vocabulary import counted_by, key_of, preference
from analysis.stats.intervals import Floats

# What is counted over trainings, or beside them, and not within one.
_NO_EPOCH = re.compile(
    r"fold|run|trial|seed|exp|client|worker|rank|gpu|stage|phase|task|net|layer|model"
)
MOST_COUNTS = 6
# A number without a name counts if it has so many values and rises by a constant so often.
FEWEST, STEADY = 5, 0.9
# Epochs are seldom as many.
MANY = 1000
# Fewer are seldom a batch.
LEAST_BATCH = 16
_WORDS_OF_STEP = frozenset(
    ["batch", "batches", "batch idx", "minibatch", "mini batch", "b", "train"]
)


def counts_of(kind: Kind) -> list[str]:
    """Return the keys of the fields that are whole numbers, in order."""
    return [
        key for key, one in kind.fields.items()
        if one.form == "number" and key not in kind.decimals and one.unit.strip() not in ("%", "s")
        and not np.isinf(kind.rows[key]).any()
    ]  # fmt: skip


def counted_steps(kind: Kind, dialect: Dialect | None) -> list[str]:
    """Return the keys of the fields that may count steps, preferred ones first."""
    if BAR_STEP in kind.fields:
        return [BAR_STEP]
    ranked = []
    nested = nested_counts(kind, dialect)
    columns = {key: meaning_of(one, dialect)[0] for key, one in kind.fields.items()}
    counts = counts_of(kind)
    for key, one in kind.fields.items():
        column, words, total = columns[key], key_of(one.name), one.total is not None
        if key not in counts or key in nested.values():
            pass
        elif key in nested and not one.name:
            ranked.append((55, key))
        elif column == "step":
            ranked.append((preference(one.name), key))
        elif column != "epoch" and (words in _WORDS_OF_STEP or column == "batch"):
            if total or distinct(kind.rows[key]) > 1:
                ranked.append((50, key))
        elif total and words in ("", "iters", "i"):
            ranked.append((60, key))
        elif key in nested:
            ranked.append((70, key))
    first = next((key for key in counts if distinct(kind.rows[key]) > 1), None)
    if not ranked and first is not None and counts_without_name(kind, first):
        return [first]
    return [key for _, key in sorted(ranked, key=lambda pair: pair[0])][:3]


def nested_counts(kind: Kind, dialect: Dialect | None) -> dict[str, str]:
    """Return, by the counts that begin again when another rises by one, the other ones.

    So an epoch is known that is named otherwise: `iteration:3 step:20/500`.
    """
    columns = {key: meaning_of(one, dialect)[0] for key, one in kind.fields.items()}
    if "epoch" in columns.values():
        return {}
    counts = [
        key for key in counts_of(kind)
        if not np.isnan(kind.rows[key]).any()
        and columns[key] in ("", "step", "batch", key_of(kind.fields[key].name).replace(" ", "_"))
    ][:MOST_COUNTS]  # fmt: skip
    found = {
        inner: outer
        for inner in counts
        for outer in counts
        if outer != inner
        and (columns[outer] != "step" or columns[inner] == "step")
        and not _NO_EPOCH.search(key_of(kind.fields[outer].name))
        and _begins_again(kind.rows[inner], kind.rows[outer])
    }
    return {inner: outer for inner, outer in found.items() if inner not in found.values()}


def _begins_again(inner: Floats, outer: Floats) -> bool:
    """Whether a count falls where another rises by one, and nowhere else."""
    rises, falls = np.diff(outer), np.diff(inner) < 0
    changed = rises != 0
    if not changed.any() or changed.all() or distinct(inner) < 2:
        return False
    is_one, falls_there = (rises[changed] == 1).mean() > 0.5, falls[changed].mean() > 0.6
    return bool(is_one and falls_there and falls[~changed].mean() < 0.02)


def counts_without_name(kind: Kind, key: str) -> bool:
    """Whether a number without a name, at the beginning of its lines, rises by a constant."""
    one, values = kind.fields[key], kind.rows[key]
    is_bare = not (one.name or one.total or one.unit or re.search(r"\w", one.context))
    return is_bare and distinct(values) >= FEWEST and regularity(values) >= STEADY


def axis_of(kind: Kind, key: str) -> str:
    """Return what a count is of: a number without a name may be of samples, or of epochs."""
    one, values = kind.fields[key], kind.rows[key]
    if one.name or one.form != "number":
        return counted_by(one.name)
    rises = np.diff(values)[np.diff(values) > 0]
    spacing = float(np.median(rises)) if len(rises) else 1.0
    if _counts_samples(values, spacing):
        return "sample"
    is_step = one.total is not None or values.max() >= MANY or spacing > 1
    return "step" if is_step else "unit"


def _counts_samples(values: Floats, spacing: float) -> bool:
    """Whether a count rises by batches: 16, 1616, 3216 of 5011, or 640, 1280 of 60000."""
    begins = bool(1 < values.min() < spacing and spacing % values.min() == 0)
    # People have every 10th, 50th or 250th step printed.
    is_round = f"{spacing:.0f}".rstrip("0") in ("1", "2", "25", "3", "4", "5", "6", "8")
    is_multiple = bool((np.mod(values, spacing) == 0).mean() > STEADY)
    return begins or (spacing >= LEAST_BATCH and is_multiple and not is_round)
