"""Which numbers of a kind of line count steps, epochs or samples, by their names and values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.epochs import regularity
from analysis.read.text.fields import Field, Kind
from analysis.read.text.values import numbers
from analysis.read.vocabulary import is_evaluation, key_of, meaning, preference
from analysis.stats.intervals import Floats

# What is counted over trainings, or beside them, and not within one.
_NO_EPOCH = re.compile(
    r"fold|run|trial|seed|exp|client|worker|rank|gpu|stage|phase|task|net|layer|model"
)
MOST_COUNTS = 6
LEAST_COUNTED = 10
_WORDS_OF_STEP = frozenset(
    (
        "batch", "batches", "batch idx", "minibatch", "mini batch", "b", "episode", "episodes",
        "num episodes", "game", "train",
    )
)  # fmt: skip


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


def counted_steps(kind: Kind, dialect: Dialect | None) -> list[int]:
    """Return the fields that may count steps, preferred ones first."""
    ranked = []
    before = ""
    nested = nested_counts(kind, dialect)
    columns = [meaning_of(one, dialect)[0] for one in kind.fields]
    has_loss = "loss" in columns and "epoch" not in columns
    for place, one in enumerate(kind.fields):
        column, key = meaning_of(one, dialect)[0], key_of(one.name)
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
    if any(meaning_of(one, dialect)[0] == "epoch" for one in kind.fields):
        return {}
    counts = [
        place for place, one in enumerate(kind.fields)
        if one.is_count and place not in kind.optional and one.unit.strip() != "%"
        and meaning_of(one, dialect)[0] in ("", "step", "batch", key_of(one.name).replace(" ", "_"))
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


def counts_samples(kind: Kind, place: int) -> bool:
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


def meaning_of(one: Field, dialect: Dialect | None) -> tuple[str, float]:
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
