"""Columns of numbers: the names that trainers give them, and tables of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats.intervals import Floats

LARGEST_STEP = 1 << 53
MOST_COLUMNS = 400

# The columns that are measured, each with the names that trainers use, preferred ones first.
ALIASES = {
    "step": (
        "step", "global_step", "trainer/global_step", "train/global_step", "_step", "iteration",
        "iter", "steps", "current_steps", "step_num", "global_steps", "n_iter", "batches",
        "train_step",
    ),
    "epoch": ("epoch", "epochs", "epoch_num", "_epoch"),
    "loss": (
        "loss", "train_loss", "train/loss", "loss/train", "training_loss", "training/loss",
        "loss_metrics/global_avg_loss", "train_loss_step", "train/loss_step", "avr_loss",
        "loss/average", "loss/current", "step_loss", "train_loss_epoch", "train/loss_epoch",
        "loss/loss", "lm loss", "lm-loss", "total_loss", "reduced_train_loss", "trl", "train loss",
        "train loss mse", "tr_loss", "mean loss",
    ),
    "lr": (
        "lr", "learning_rate", "train/lr", "train/learning_rate", "learning-rate", "lr/unet",
        "learning rate", "base_lr",
    ),
    "grad_norm": ("grad_norm", "train/grad_norm", "grad-norm", "grad norm", "gnorm"),
    "images": (
        "images", "samples_count", "consumed_samples", "samples_seen", "images_seen",
        "consumed samples", "samples", "train_samples",
    ),
    "batch": ("batch", "global_batch_size", "global batch size", "batch_size"),
    "time": ("time", "wall_time", "timestamp", "_timestamp", "walltime"),
    "train_s": ("train_s",),
    "elapsed_s": (
        "elapsed", "elapsed_s", "elapsed_time", "relative_time", "relative time (process)",
        "_runtime", "runtime",
    ),
    "step_s": (
        "step_s", "step_time", "train_step_time", "time_metrics/end_to_end(s)", "sec_per_step",
        "train_step_timing", "train_step_timing in s", "seconds_per_step",
    ),
    "steps_per_s": (
        "steps_per_s", "steps_per_sec", "train_steps_per_sec", "steps_per_second", "it/s",
        "train steps/sec",
    ),
    "tokens_per_s": ("throughput(tps)", "wps", "tps", "tokens_per_second", "tokens_per_sec",
                     "tokens/s/device"),
    "images_per_s": (
        "images_per_s", "images_per_sec", "images_per_second", "samples_per_second", "throughput",
        "im/s", "samples per second", "imgs_sec",
    ),
}  # fmt: skip
# The rows that have a value, and the values.
Column = tuple[Sequence[int] | NDArray[np.int64], Sequence[float] | Floats]
_BY_NAME = {name: column for column, names in ALIASES.items() for name in names}
_RANKS = {name: rank for names in ALIASES.values() for rank, name in enumerate(names)}


def column_of(name: str) -> str:
    """Return the column for a foreign name: one of `ALIASES`, or the name itself."""
    return _BY_NAME.get(name.strip().lower(), name)


def preference(name: str) -> int:
    """Return the rank of a name among those of its column; the lowest is taken."""
    return _RANKS.get(name.strip().lower(), 0)


def preferred(names: Iterable[str]) -> dict[str, str]:
    """Return the preferred of the foreign names for each column."""
    best: dict[str, str] = {}
    for name in names:
        column = column_of(name)
        best[column] = min(best.get(column, name), name, key=preference)
    return best


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

    def merged(self, number: NDArray[np.int64], *, first: bool = False) -> "Rows":
        """Return the rows of each number [n] as one (`merged`)."""
        present = {name: np.flatnonzero(~np.isnan(self[name])) for name in self.columns}
        return merged({n: (at, self[n][at]) for n, at in present.items()}, number, first=first)


def join(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    names = list(dict.fromkeys(name for part in parts for name in part.columns))[:MOST_COLUMNS]
    return Rows({name: np.concatenate([part[name] for part in parts]) for name in names})


def merged(cells: Mapping[str, Column], number: NDArray[np.int64], *, first: bool = False) -> Rows:
    """Return the rows of each number [n] as one: the last value of a column counts, or the first.

    Where the last counts, line, place and time are those of a row with a loss, if there is one.
    """
    columns, has_loss = {}, np.zeros(len(number), dtype=bool)
    has_loss[np.array(cells["loss"][0] if "loss" in cells else (), dtype=np.int64)] = True
    for name, (rows, values) in cells.items():
        at = np.array(rows, dtype=np.int64)
        order = np.arange(len(at))[:: -1 if first else 1]
        if not first and name in ("line", "place", "time"):
            order = np.argsort(has_loss[at], kind="stable")
        count = int(number.max(initial=-1)) + 1
        columns[name] = spread(number[at[order]], np.array(values, dtype=float)[order], count)
    return Rows(columns)


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

    def columns(self, count: int) -> dict[str, Floats]:
        """Return the columns [count] under our names."""
        found = self.found.items()
        return by_preference({n: spread(at, v, count) for n, (at, v) in found})


def spread(
    rows: Sequence[int] | NDArray[np.int64], values: Sequence[float] | Floats, count: int
) -> Floats:
    """Return a column [count] with values in some rows, NaN in the others."""
    column = np.full(count, np.nan)
    column[rows] = values
    return column


def by_preference(found: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return columns [n] under our names: of several for one, each row takes the preferred one."""
    columns: dict[str, Floats] = {}
    for name in sorted(found, key=preference, reverse=True):
        own, values = column_of(name), found[name]
        columns[own] = np.where(np.isnan(values), columns.get(own, values), values)
    return columns
