"""Texts that are alike but for their digits and for how many of these stand in a row.

`12.5` and `7.25` have no shape in common (see `shapes`), but a pattern that takes any number of
digits treats them alike, if all else is the same. So texts are compared by what stands between
their runs of digits, and of each run it is known where it begins and ends in every text.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.read.run_log import Ints
from analysis.read.text.batch import Span
from analysis.read.text.shapes import BLOCK, Texts
from analysis.stats.intervals import Floats

# To look at a piece for so few texts costs more than to read them one by one.
FEWEST_TEXTS = 48
FEWEST_KIN, MOST_KINDS = 8, 8
# As many digits as the patterns take of any whole number, and as are read of any fraction.
MOST_WHOLE, MOST_FRACTION = 15, 18
_COUNTED = 3


@dataclass(frozen=True, kw_only=True)
class Runs:
    """`n` texts of one piece with `k` runs of digits each: where the runs begin and end [k, n].

    `start` [n] and `end` [n] are the texts' own.
    """

    data: NDArray[np.uint8]
    start: Ints
    end: Ints
    begin: Ints
    stop: Ints

    def __len__(self) -> int:
        return len(self.start)

    def select(self, kept: Ints | NDArray[np.bool_]) -> "Runs":
        """Some of the texts."""
        return Runs(
            data=self.data,
            start=self.start[kept],
            end=self.end[kept],
            begin=self.begin[:, kept],
            stop=self.stop[:, kept],
        )

    def first(self) -> bytes:
        """The first text, which stands for the others."""
        return self.data[self.start[0] : self.end[0]].tobytes()

    def at(self, place: int) -> Ints:
        """Where in each text [n] a place of the first one lies."""
        before = int(np.searchsorted(self.stop[:, 0] - self.start[0], place, side="right"))
        if not before:
            return np.full(len(self), place)
        stop = self.stop[before - 1] - self.start
        return stop + (place - int(stop[0]))

    def inside(self, span: Span) -> slice:
        """The runs that lie in a span of the first text."""
        begin, stop = self.begin[:, 0] - self.start[0], self.stop[:, 0] - self.start[0]
        return slice(
            int(np.searchsorted(begin, span[0])), int(np.searchsorted(stop, span[1], side="right"))
        )

    def column(self, span: Span, convert: Callable[[Texts], Floats]) -> Floats:
        """What `convert` makes of a span of the first text in each of them [n]."""
        mine = self.inside(span)
        widths = self.stop[mine] - self.begin[mine]
        begin, size = self.start + self.at(span[0]), span[1] - span[0]
        if (widths == widths[:, :1]).all():
            return convert(_windows(self.data, begin, size))
        found = np.full(len(self), np.nan)
        more = widths.sum(axis=0) - int(widths[:, 0].sum())
        for rows in _each_kind(widths):
            found[rows] = convert(_windows(self.data, begin[rows], size + int(more[rows[0]])))
        return found


def same_run_counts(
    data: bytes, starts: Ints, ends: Ints, *, longest: int
) -> Iterator[tuple[Ints, Runs]]:
    """The texts data[start:end] with their indices [n], those of one number of runs together.

    Texts longer than `longest`, and those of a rare number of runs, are left out.
    """
    if len(starts) < FEWEST_TEXTS:
        return
    if (ends - starts).sum() * 2 < len(data):
        data, starts, ends = _gathered(data, starts, ends)
    raw = np.frombuffer(data, dtype=np.uint8)
    edges = _edges(raw)
    begin, stop = edges[::2], edges[1::2]
    low = np.searchsorted(begin, starts)
    counts = np.searchsorted(begin, ends) - low
    counts[ends - starts > longest] = 0
    for count in np.flatnonzero(np.bincount(counts, minlength=1) >= FEWEST_KIN):
        if not count:
            continue
        rows = np.flatnonzero(counts == count)
        runs = low[rows] + np.arange(count)[:, None]
        yield (
            rows,
            Runs(data=raw, start=starts[rows], end=ends[rows], begin=begin[runs], stop=stop[runs]),
        )


def _edges(raw: NDArray[np.uint8]) -> Ints:
    """Where runs of digits begin and stop, in turn; block by block, which fits a cache."""
    found = [np.zeros(1 if 48 <= raw[0] < 58 else 0, dtype=np.int64)]
    for first in range(0, len(raw), BLOCK):
        is_digit = (raw[first : first + BLOCK + 1] - np.uint8(48)) < 10
        found.append(np.flatnonzero(is_digit[1:] != is_digit[:-1]) + (first + 1))
    edges = np.concatenate(found)
    return np.append(edges, len(raw)) if len(edges) % 2 else edges


def _gathered(data: bytes, starts: Ints, ends: Ints) -> tuple[bytes, Ints, Ints]:
    """Some texts without what lies between them: less to look through."""
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    after = np.cumsum(ends - starts + 1)
    texts = b"\n".join([data[start:end] for start, end in bounds])
    return texts, after - (ends - starts + 1), after - 1


def alike_runs(runs: Runs, *, elastic: Sequence[Span]) -> NDArray[np.bool_]:
    """Which texts [n] are as the first but for digits, and their number in the `elastic` spans."""
    widths = runs.stop - runs.begin
    same = np.ones(len(runs), dtype=bool)
    is_fixed = np.ones(len(widths), dtype=bool)
    first = runs.first()
    for span in elastic:
        mine = runs.inside(span)
        is_fixed[mine] = False
        most = MOST_WHOLE if first[slice(*span)].isdigit() else MOST_FRACTION
        same &= (widths[mine] <= most).all(axis=0)
    same &= (widths[is_fixed] == widths[is_fixed, :1]).all(axis=0)
    lefts = np.concatenate([runs.start[None], runs.stop])
    sizes = np.concatenate([runs.begin, runs.end[None]]) - lefts
    same &= (sizes == sizes[:, :1]).all(axis=0)
    rows = np.flatnonzero(same)
    for left, size in zip(lefts[:, rows], sizes[:, 0].tolist(), strict=True):
        if size:
            between = _windows(runs.data, left, size)
            flat = between.reshape(-1)
            if not np.array_equal(flat[size:], flat[:-size]):
                same[rows] &= (between == between[0]).all(axis=1)
    return same


def _each_kind(widths: Ints) -> Iterator[Ints]:
    """The rows of each combination of widths [k, n], none of them above `MOST_FRACTION`."""
    key = np.zeros(widths.shape[1], dtype=np.int64)
    for of_run in widths:
        key = key * (MOST_FRACTION + 1) + of_run
    few = len(widths) <= _COUNTED
    for kind in np.flatnonzero(np.bincount(key)) if few else np.unique(key):
        yield np.flatnonzero(key == kind)


def _windows(data: NDArray[np.uint8], begin: Ints, size: int) -> Texts:
    """The `size` bytes from each place [n] as a matrix [n, size]."""
    every = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return every[begin].view(np.uint8).reshape(-1, size)
