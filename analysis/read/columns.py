"""Tables of rows: columns of numbers, NaN where a row has no value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.read.vocabulary import (
    EVALUATION,
    is_evaluation,
    is_loss,
    key_of,
    meaning,
    names_no_quantity,
    preference,
)
from analysis.stats.intervals import Floats

LARGEST_STEP = 1 << 53
MOST_COLUMNS = 400
# Names that some give a loss and others something else; preferred ones first.
OBJECTIVES = ("total", "l", "objective", "cost", "recon", "reconstruction", "score")

# The rows that have a value, and the values.
Column = tuple[Sequence[int] | NDArray[np.int64], Sequence[float] | Floats]


@dataclass(frozen=True)
class Rows:
    """`n` rows of a log: columns [n] by name, NaN where a row has no value.

    `line` and `place` (both ascending) say where a row stands in its file. A value that the log
    prints as NaN or infinite is `inf`.
    """

    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Floats:
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> "Rows":
        """Return some of the rows, by index or mask."""
        return Rows({name: column[index] for name, column in self.columns.items()})

    def replace(self, **columns: Floats) -> "Rows":
        """Return the rows with some columns replaced or added."""
        return Rows({**self.columns, **columns})

    def merged(self, number: NDArray[np.int64]) -> "Rows":
        """Return the rows of each number [n] as one: the last value of a column counts.

        Line, place and times are those of a row with a loss, if there is one.
        """
        count = int(number.max(initial=-1)) + 1
        has_loss = ~np.isnan(self["loss"])
        columns = {}
        for name, values in self.columns.items():
            at = np.flatnonzero(~np.isnan(values))
            if name in ("line", "place", "time") or name.endswith("_s"):
                at = at[np.argsort(has_loss[at], kind="stable")]
            columns[name] = spread(number[at], values[at], count)
        return Rows(columns)


def join(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    names = list(dict.fromkeys(name for part in parts for name in part.columns))[:MOST_COLUMNS]
    return Rows({name: np.concatenate([part[name] for part in parts]) for name in names})


def distinct(values: Floats | NDArray[np.int64]) -> int:
    """Return the number of different values, of which NaN is one; `np.unique` takes much longer."""
    known = np.sort(values[~np.isnan(values)])
    return int((known[1:] != known[:-1]).sum()) + (len(known) > 0) + (len(known) < len(values))


class Cells:
    """Values by foreign name and row, for rows that do not all have the same names."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[list[int], list[float]]] = {}

    def add(self, row: int, values: Mapping[str, float]) -> None:
        """Add the values of a row; names beyond `MOST_COLUMNS` are left out."""
        for name, value in values.items():
            column = self.found.get(name)
            if column is None:
                if len(self.found) >= MOST_COLUMNS:
                    continue
                column = self.found[name] = ([], [])
            column[0].append(row)
            column[1].append(value)

    def names(self) -> dict[str, str]:
        """Return the foreign names by ours: of several names for one column the preferred."""
        names: dict[str, str] = {}
        for name in self.found:
            column = meaning(name)[0] or name
            names[column] = min(names.get(column, name), name, key=preference)
        return names

    def alike(self, own: str, foreign: str) -> str | None:
        """Return another name of a column that is as good as one, with other values, or None."""
        best = preference(foreign)
        others = [
            name for name in self.found
            if name != foreign and meaning(name)[0] == own and preference(name) == best
        ]  # fmt: skip
        known = dict(zip(*self.found[foreign], strict=True)) if others else {}
        for name in others:
            if any(known.get(at, one) != one for at, one in zip(*self.found[name], strict=True)):
                return name
        return None

    def columns(self, count: int) -> dict[str, Floats]:
        """Return the columns [count] under our names."""
        return {
            own: spread(*self.found[foreign], count) * meaning(foreign)[1]
            for own, foreign in self.names().items()
        }


def spread(
    rows: Sequence[int] | NDArray[np.int64], values: Sequence[float] | Floats, count: int
) -> Floats:
    """Return a column [count] with values in some rows, NaN in the others."""
    column = np.full(count, np.nan)
    column[rows] = values
    return column


def filled(values: Floats) -> Floats:
    """Return values [n] with the last known one in place of each that is unknown."""
    last = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))
    return np.where(last >= 0, values[last], np.nan)


def losses_by_other_names(columns: Mapping[str, Floats]) -> tuple[dict[str, str], str | None]:
    """Return the new names of columns by name that are losses, and a doubt about the training's.

    Of several losses of which none is called the loss the first is shown. A value that is only
    named for the training or for an evaluation is its loss if it falls, as a loss does.
    """
    renamed = {
        name: f"{key_of(name)}_loss" for name, values in columns.items()
        if key_of(name) in EVALUATION and falls(values)
    }  # fmt: skip
    if "loss" in columns:
        return renamed, None
    names = [name for name in columns if not is_evaluation(name)]
    # Of `Loss/G/loss` and `Loss/scores` the first is one, and seldom one that is always 0.
    losses = sorted(
        filter(is_loss, names),
        key=lambda name: (not columns[name].any(), not is_loss(key_of(name).split()[-1])),
    )
    if losses:
        whole, others = losses[0], ", ".join(losses[:4])
        doubt = f"two readings: {others}; none is called the whole, {whole!r} is shown"
        return renamed | {whole: "loss"}, doubt if losses[1:] else None
    falling = [name for name in names if name and falls(columns[name])]
    alone = [name for name in falling if names_no_quantity(name)]
    keys = {name: key_of(name).removeprefix("train ") for name in falling}
    objectives = [name for word in OBJECTIVES for name in falling if keys[name] == word]
    if len(alone) != 1 and not objectives:
        return renamed, None
    shown = alone[0] if len(alone) == 1 else objectives[0]
    return renamed | {shown: "loss"}, f"{shown!r} may be a loss: it falls as one does"


def falls(values: Floats) -> bool:
    """Whether the last third of some values is lower than the first."""
    known = values[np.isfinite(values)]
    third = len(known) // 3
    return third > 0 and bool(np.median(known[-third:]) < np.median(known[:third]))
