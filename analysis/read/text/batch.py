"""Rows found in one piece of a log, before ranks and attempts are told apart."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

LARGEST_STEP = 1 << 53
Span = tuple[int, int]
NOWHERE: Span = (-1, -1)


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """`n` rows: step, line and place in the file, rank (-1 unknown), group, and named values.

    `group` tells apart what one format may tell side by side (bars of different length).
    """

    step: Ints
    line: Ints
    place: Ints
    rank: Ints
    group: Ints
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, kw_only=True)
class Field:
    """Where a column's text stands: a group of the format's pattern, or group 1 of one in it."""

    group: str
    inner: re.Pattern[bytes] | None = None
    convert: Callable[[np.ndarray], Floats] | None = None
    per: float = 1.0

    def span(self, match: re.Match[bytes]) -> Span:
        """The text's (start, end) where a row was matched; `NOWHERE` where it is absent."""
        start, end = match.span(self.group)
        if self.inner is None or start < 0:
            return start, end
        found = self.inner.search(match[self.group])
        return (start + found.start(1), start + found.end(1)) if found else NOWHERE


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of text log: a token on each line with a row, and how such rows are read.

    Either `pattern` finds the rows and `fields` their columns (without one of `step` all are at
    step 0, without one of `time` the stamp before a row is its time), or `read` takes the numbers
    from a segment's text, each set with its place, in units of which `per` make one of ours. No
    pattern names a digit (see `shapes`).
    """

    name: str
    token: bytes
    pattern: re.Pattern[bytes] | None = None
    fields: Mapping[str, Field] | None = None
    read: Callable[[bytes], Sequence[tuple[int, dict[str, float]]]] | None = None
    per: Mapping[str, float] = field(default_factory=dict)
    has_stamps: bool = True
    is_redrawn: bool = False


def batch(columns: dict[str, Floats], *, line: Ints, place: Ints, rank: Ints) -> RowBatch | None:
    """A batch of rows by their columns; None where no step is a step."""
    step = columns.pop("step", np.zeros(len(line)))
    kept = (step >= 0) & (step < LARGEST_STEP)
    if not kept.any():
        return None
    group = columns.pop("group", np.zeros(len(step)))
    every = bool(kept.all())
    return RowBatch(
        step=(step if every else step[kept]).astype(np.int64),
        line=line if every else line[kept],
        place=place if every else place[kept],
        rank=rank if every else rank[kept],
        group=(group if every else group[kept]).astype(np.int64),
        values={
            name: column if every else column[kept]
            for name, column in columns.items()
            if not np.isnan(column if every else column[kept]).all()
        },
    )


def in_order(parts: Sequence[RowBatch], *, is_redrawn: bool) -> RowBatch:
    """Batches as one, in the order of the file.

    Of a bar that is redrawn at one step only the last drawing, whose loss is that step's.
    """
    rows = join(parts)
    if (np.diff(rows.place) < 0).any():
        rows = select(rows, np.argsort(rows.place, kind="stable"))
    if is_redrawn:
        differs = (np.diff(rows.step) != 0) | (np.diff(rows.group) != 0)
        rows = select(rows, np.flatnonzero(np.append(differs, True)))
    return rows


def join(batches: Sequence[RowBatch]) -> RowBatch:
    """Batches of one file as one, in the order of the file."""
    names = dict.fromkeys(name for batch in batches for name in batch.values)
    if len(batches) == 1:
        return batches[0]
    return RowBatch(
        step=np.concatenate([batch.step for batch in batches]),
        line=np.concatenate([batch.line for batch in batches]),
        place=np.concatenate([batch.place for batch in batches]),
        rank=np.concatenate([batch.rank for batch in batches]),
        group=np.concatenate([batch.group for batch in batches]),
        values={
            name: np.concatenate(
                [batch.values.get(name, np.full(len(batch), np.nan)) for batch in batches]
            )
            for name in names
        },
    )


def select(rows: RowBatch, kept: Ints) -> RowBatch:
    """Some rows of a batch, by index; the batch itself where these are all of them in order."""
    if len(kept) == len(rows) and (np.diff(kept) == 1).all():
        return rows
    return RowBatch(
        step=rows.step[kept],
        line=rows.line[kept],
        place=rows.place[kept],
        rank=rows.rank[kept],
        group=rows.group[kept],
        values={name: column[kept] for name, column in rows.values.items()},
    )
