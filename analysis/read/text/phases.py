"""Tell the lines of evaluations from the training's: by words in or above them, and by totals."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analysis.read.columns import Rows
from analysis.read.text.counts import counted_steps
from analysis.read.text.fields import BAR_STEP, Field
from analysis.read.text.kinds import Kind, Text
from analysis.read.vocabulary import (
    EVALUATION,
    is_evaluation,
    is_loss,
    key_of,
    takes_phase,
)

# Names after which a loss is the training's all the same.
_NO_RESULT = re.compile(r"time|every|interval|\b(?:steps?|fid|kid)\b")
_TRAINING = frozenset(["train", "training"])
# Counts whose ends differ by a smaller share are of one kind.
SAME_END = 0.1


def evaluations_apart(text: Text) -> list[Kind]:
    """Return the kinds of a text; those with lines of evaluations as two, with the results named.

    A line is of an evaluation if it counts to another total than most of its kind, or if a result
    before its loss is named so: `eval_acc: 0.9, loss: 0.3`.
    """
    found = []
    for kind in text.kinds:
        if BAR_STEP in kind.fields:
            found.append(kind)
            continue
        is_other, remark = _has_other_total(kind)
        kind.remarks += [remark] if remark else []
        if not is_other.all():
            found.append(_part(kind, ~is_other))
        if is_other.any():
            found.append(_named(_part(kind, is_other)))
    return [
        part
        for kind in found
        for part in ([kind] if BAR_STEP in kind.fields else _by_names(kind, found))
    ]


def why_below_evaluations(rows: Rows, pauses: Sequence[int]) -> str | None:
    """Return a doubt if rows that begin again below a named evaluation count to an end of theirs.

    `Validation`, and below it `batch 10 | loss 0.5` as in training. `pauses` are the places of
    lines that name evaluations, samples or saves, in order.
    """
    step, place = rows["step"], rows["place"]
    begins = np.flatnonzero(np.diff(step) < 0) + 1
    if not len(begins) or "loss" not in rows:
        return None
    ends = np.append(step[begins[1:] - 1], step[-1])
    before, after = (np.searchsorted(pauses, place[at]) for at in (begins - 1, begins))
    is_below = after > before
    if is_below.all() or not is_below.any():
        return None
    below, others = float(np.median(ends[is_below])), float(np.median(ends[~is_below]))
    if abs(below - others) <= SAME_END * max(below, others):
        return None
    return "may be that of evaluations, which the text names above some of its lines"


def _is_result(one: Field) -> bool:
    return bool(one.name) and takes_phase(one.name)


def _has_other_total(kind: Kind) -> tuple[NDArray[np.bool_], str]:
    """Return which rows [n] are not of the commonest total, if a few alternate, and a remark.

    `step 614/614 - loss` of an epoch, then `step 89/89 - loss` of its evaluation.
    """
    totals = next((kind.rows[f"{key}/of"] for key in counted_steps(kind)), np.zeros(0))
    of = totals[~np.isnan(totals)]
    found, counts = np.unique(of, return_counts=True)
    if not 2 <= len(found) <= 3 or (np.diff(of) != 0).sum() < len(found) + 1:
        return np.zeros(len(kind.rows), dtype=bool), ""
    main = found[::-1][counts[::-1].argmax()]
    names = " and ".join(f"{total:g}" for total in found if total != main)
    remark = f"lines that count to {names} may be of evaluations: their loss is a val_loss"
    return (totals != main) & ~np.isnan(totals), remark


def _part(kind: Kind, is_own: NDArray[np.bool_]) -> Kind:
    """Return a kind with some of its rows [n]."""
    if is_own.all():
        return kind
    rows = kind.rows.take(is_own)
    fields = {key: one for key, one in kind.fields.items() if not np.isnan(rows[key]).all()}
    return replace(kind, rows=rows, fields=fields, count=len(rows))


def _named(kind: Kind) -> Kind:
    """Return a kind with its results named as an evaluation's, unless a name says whose it is."""
    fields = {
        key: replace(one, name=f"val {one.name}")
        if _is_result(one) and (EVALUATION | _TRAINING).isdisjoint(key_of(one.name).split())
        else one
        for key, one in kind.fields.items()
    }
    return replace(kind, fields=fields)


def _by_names(kind: Kind, kinds: Sequence[Kind]) -> list[Kind]:
    """Return a kind in which a loss after a result of an evaluation is its own, or doubtful.

    It is the training's if a name stands with and without the word: `val_loss: 2, loss: 1`.
    """
    names = {key_of(one.name): key for key, one in kind.fields.items()}
    results = [name for name in names if is_evaluation(name) and not _NO_RESULT.search(name)]
    losses = _losses(kind)
    has_both = any(name.partition(" ")[2] in names for name in results)
    is_after = results and losses and [*names].index(results[0]) < [*names].index(losses[0])
    if not is_after or has_both or _TRAINING & _words(kind):
        return [kind]
    has_result = ~np.isnan(kind.rows[names[results[0]]])
    if not has_result.all():
        return [_part(kind, ~has_result), _named(_part(kind, has_result))]
    if any(_losses(one) and not any(map(is_evaluation, _words(one))) for one in kinds):
        return [_named(kind)]
    return [replace(kind, doubt=f"may be that of the evaluation: {results[0]!r} stands before it")]


def _words(kind: Kind) -> set[str]:
    """Return the words in the names of a kind's values."""
    return {word for one in kind.fields.values() for word in key_of(one.name).split()}


def _losses(kind: Kind) -> list[str]:
    """Return the names of losses that no word qualifies as an evaluation's."""
    names = [key_of(one.name) for one in kind.fields.values()]
    return [name for name in names if is_loss(name) and not is_evaluation(name)]
