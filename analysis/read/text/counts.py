"""Which numbers of a kind of line count steps, epochs or samples, by their names and values."""

import re

import numpy as np

from analysis.read.columns import distinct
from analysis.read.epochs import regularity
from analysis.read.text.fields import BAR_STEP
from analysis.read.text.kinds import Kind
from analysis.read.vocabulary import counted_by, key_of, preference
from analysis.stats.intervals import Floats

# A number without a name counts if it has so many values and rises by a constant so often.
FEWEST, STEADY = 5, 0.9
# Epochs are seldom as many.
MANY = 1000
# timm: `Train: 0 [  50/1251 (  4%)]`.
EPOCH_OF_TIMM = "train|number|"
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


def counted_steps(kind: Kind) -> list[str]:
    """Return the keys of the fields that may count steps, preferred ones first."""
    if BAR_STEP in kind.fields:
        return [BAR_STEP]
    ranked = []
    counts = counts_of(kind)
    for key, one in kind.fields.items():
        column, words, total = one.meaning[0], key_of(one.name), one.total is not None
        if key not in counts:
            continue
        if column == "step":
            ranked.append((preference(one.name), key))
        elif column != "epoch" and (words in _WORDS_OF_STEP or column == "batch_number"):
            if total or distinct(kind.rows[key]) > 1:
                ranked.append((50, key))
        elif total and words in ("", "iters", "i"):
            ranked.append((60, key))
    first = next((key for key in counts if distinct(kind.rows[key]) > 1), None)
    if not ranked and first is not None and counts_without_name(kind, first):
        return [first]
    keys = [key for _, key in sorted(ranked, key=lambda pair: pair[0])][:3]
    return [key for key in keys if key != EPOCH_OF_TIMM] or keys


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
