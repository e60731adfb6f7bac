"""The rows of every format in one piece of a text log.

Lines of one shape are read all at once (see `shapes`), the rest one by one: both by the same
patterns, so that they say the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.run_log import Ints
from analysis.read.text.batch import Format, RowBatch, Span, batch, in_order
from analysis.read.text.chunks import Chunk, codes, without_codes
from analysis.read.text.elastic import FEWEST_KIN, MOST_KINDS, Runs, alike_runs, same_run_counts
from analysis.read.text.row import Row, convert_of, elastic_spans, rows_in, rows_of_shape
from analysis.read.text.segments import Segments, segments
from analysis.read.text.shapes import Texts, alike, decimals, each_shape, integers
from analysis.stats.intervals import Floats

LONGEST_ALIKE, LONGEST_KIN = 2000, 400
FEW = 1000


def rows(chunk: Chunk, formats: Sequence[Format]) -> dict[str, RowBatch]:
    """The rows of each format that has any, in the order of the file."""
    found = segments(chunk, [*(known.token for known in formats), b"\x1b"])
    parts: dict[str, list[RowBatch]] = {}
    left = np.ones(len(found.start), dtype=bool)
    for indices, texts in alike(chunk.data, found.start, found.end, longest=LONGEST_ALIKE):
        first = texts[0].tobytes()
        clean = without_codes(first)
        holding = [known for known in formats if known.token in clean]
        told = {known.name: rows_of_shape(known, clean) for known in holding}
        if None in told.values():
            continue
        left[indices] = False
        alikes = _Alike(texts=texts, kept=_kept(first))
        for known in holding:
            for row in told[known.name] or ():
                _put(parts, known, _alike(known, row, alikes, _places(chunk, found, indices)))
    for known, part, indices in _kin(formats, chunk, found, np.flatnonzero(left)):
        left[indices] = False
        _put(parts, known, part)
    for known in formats:
        _put(parts, known, _one_by_one(known, chunk, found, np.flatnonzero(left)))
    return {
        known.name: in_order(parts[known.name], is_redrawn=known.is_redrawn)
        for known in formats
        if known.name in parts
    }


def _put(parts: dict[str, list[RowBatch]], known: Format, part: RowBatch | None) -> None:
    if part is not None:
        parts.setdefault(known.name, []).append(part)


def _kept(text: bytes) -> Ints:
    """The places of a text that are not a terminal code's."""
    is_kept = np.ones(len(text), dtype=bool)
    for start, end in codes(text):
        is_kept[start:end] = False
    return np.flatnonzero(is_kept)


@dataclass(frozen=True, kw_only=True)
class _Places:
    """The line in the file, and where the segment begins in it, of `n` rows."""

    line: Ints
    start: Ints


def _places(chunk: Chunk, found: Segments, indices: Ints) -> _Places:
    return _Places(line=found.line[indices], start=chunk.offset + found.start[indices])


@dataclass(frozen=True, kw_only=True)
class _Alike:
    """Texts of one shape [n, length], and the places in them that are no terminal code's."""

    texts: Texts
    kept: Ints

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, place: int) -> Ints:
        """Where in each text [n] a place of the first one lies."""
        return np.full(len(self), place)

    def column(self, span: Span, convert: Callable[[Texts], Floats]) -> Floats:
        """What `convert` makes of a part of each text, by its span in one without codes."""
        places = self.kept[slice(*span)]
        first, last = int(places[0]), int(places[-1])
        is_whole = last - first < len(places)
        return convert(self.texts[:, first : last + 1] if is_whole else self.texts[:, places])


def _kin(
    formats: Sequence[Format], chunk: Chunk, found: Segments, indices: Ints
) -> Iterator[tuple[Format, RowBatch | None, Ints]]:
    """The rows of texts that differ in their numbers only, with these texts' indices."""
    bounds = found.start[indices], found.end[indices]
    for rows_of_count, runs in same_run_counts(chunk.data, *bounds, longest=LONGEST_KIN):
        of = indices[rows_of_count]
        for _ in range(MOST_KINDS):
            first = runs.first()
            holding = [known for known in formats if known.token in first]
            told = {known.name: rows_of_shape(known, first) for known in holding}
            is_clear = b"\x1b" not in first and None not in told.values()
            each = [(known, row) for known in holding for row in told[known.name] or ()]
            spans = [span for known, row in each for span in elastic_spans(known, row)]
            mine = alike_runs(runs, elastic=spans) if is_clear else np.arange(len(runs)) == 0
            if is_clear and mine.sum() >= FEWEST_KIN:
                group, group_of = runs.select(mine), of[mine]
                places = _places(chunk, found, group_of)
                for known, row in each:
                    yield known, _alike(known, row, group, places), group_of
            runs, of = runs.select(~mine), of[~mine]
            if len(runs) < FEWEST_KIN:
                break


def _alike(known: Format, row: Row, alikes: _Alike | Runs, places: _Places) -> RowBatch | None:
    """The row that each of many texts holds where the first of them does."""
    columns = {
        name: alikes.column(span, convert_of(known, name))
        for name, span in row.spans.items()
        if span[0] < span[1]
    }
    for name, span in row.numbers.items():
        columns[name] = alikes.column(span, decimals) / known.per.get(name, 1.0)
    rank = alikes.column(row.rank, integers) if row.rank else np.full(len(alikes), -1)
    place = places.start + alikes.at(row.start)
    return batch(columns, line=places.line, place=place, rank=rank.astype(np.int64))


def _one_by_one(known: Format, chunk: Chunk, found: Segments, indices: Ints) -> RowBatch | None:
    """The rows in segments that no others are like."""
    data, has_codes = chunk.data, b"\x1b" in chunk.data
    if len(indices) > FEW and not has_codes and known.token not in data:
        return None
    of: list[int] = []
    told: list[Row] = []
    ranks: list[int] = []
    texts: dict[str, list[bytes]] = {name: [] for name in ("time", *(known.fields or {}))}
    bounds = zip(found.start[indices].tolist(), found.end[indices].tolist(), strict=True)
    for index, (start, end) in zip(indices.tolist(), bounds, strict=True):
        may_hold = data.find(known.token, start, end) >= 0
        if not may_hold and not (has_codes and data.find(b"\x1b", start, end) >= 0):
            continue
        text = without_codes(data[start:end])
        for row in rows_in(known, text):
            of.append(index)
            told.append(row)
            ranks.append(int(text[slice(*row.rank)]) if row.rank else -1)
            for name, column in texts.items():
                span = row.spans.get(name)
                column.append(text[slice(*span)] if span and span[0] >= 0 else b"")
    if not of:
        return None
    columns = {name: each_shape(column, convert_of(known, name)) for name, column in texts.items()}
    for name in dict.fromkeys(name for row in told for name in row.values):
        absent = 0.0 if name == "step" else np.nan
        values = np.array([row.values.get(name, absent) for row in told])
        columns[name] = values / known.per.get(name, 1.0)
    places = _places(chunk, found, np.array(of))
    place = places.start + np.array([row.start for row in told])
    return batch(columns, line=places.line, place=place, rank=np.array(ranks))
