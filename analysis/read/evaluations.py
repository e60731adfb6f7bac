"""The evaluations in the rows of a log: which intervals hold one, and their records."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.read.columns import Rows
from analysis.read.run_log import Ints
from analysis.read.vocabulary import is_evaluation, key_of
from analysis.stats.intervals import Floats

# Above this share of intervals with an evaluation none is left to time the training alone by.
ALL_EVALUATED = 0.9


def is_result(name: str) -> bool:
    """Whether a name is of what an evaluation found, and not its time or the best one so far."""
    is_best = "best" in key_of(name).split()
    return is_evaluation(name) and not (is_best or name.endswith("_s"))


def with_evaluated(
    merged: Rows, rows: Rows, number: Ints, is_main: NDArray[np.bool_]
) -> tuple[Rows, bool]:
    """Return merged rows with a count of evaluations that rises over each interval with one.

    If every interval has one there is no count, but a True beside them.

    `number` [n] are the merged rows of `rows`. An evaluation in a record of its own is after or
    before the training's of that step, by its place; another may be on either side of its row.
    So do samples and saves that the log names: `pause`.
    """
    present = ~np.isnan(rows["pause"])
    for name in filter(is_result, rows.columns):
        present |= ~np.isnan(rows[name])
    trained = np.full(len(merged), np.nan)
    trained[number[is_main]] = rows["place"][is_main]
    at = number[present]
    is_after = rows["place"][present] > trained[at]
    is_before = rows["place"][present] < trained[at]
    counts = np.bincount(np.append(at[~is_after], at[~is_before] + 1), minlength=len(merged) + 1)
    counts = counts[: len(merged)]
    if not counts[1:].any():
        return merged, False
    if (counts[1:] > 0).mean() > ALL_EVALUATED:
        return merged, True
    return merged.replace(evaluated=np.cumsum(counts, dtype=np.float64)), False


def evaluation_records(
    step: Ints, line: Ints, values: Mapping[str, Floats]
) -> tuple[Mapping[str, Any], ...]:
    """Return a record for every row with a metric that is named for an evaluation."""
    names = [name for name in values if is_result(name) or "accuracy" in key_of(name)]
    beside = [name for name in ("time", "images", "elapsed_s") if name in values]
    present = np.zeros(len(step), dtype=bool)
    for name in names:
        present |= ~np.isnan(values[name])
    found = []
    for row in np.flatnonzero(present).tolist():
        record = {name: float(values[name][row]) for name in (*beside, *names)}
        record = {name: value for name, value in record.items() if not np.isnan(value)}
        if "elapsed_s" in record:
            record.setdefault("time", record["elapsed_s"])
        found.append(record | {"step": int(step[row]), "line": int(line[row])})
    return tuple(found)
