"""The rows of every format in one piece of a text log.

Lines of one shape are read all at once (see `shapes`), the rest one by one: both by the same
patterns, so that they say the same.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.noise import Floats
from analysis.read.batch import Batch, Format, Span, batch, in_order
from analysis.read.chunks import Chunk, codes, without_codes
from analysis.read.log import Ints
from analysis.read.places import number_places
from analysis.read.segments import Segments, segments
from analysis.read.shapes import Texts, alike, decimals, each_shape, integers
from analysis.read.stamps import find_stamp, moments

LONGEST_HEAD = 400
LONGEST_ALIKE = 2000
_RANK = re.compile(rb"(?i)\[rank ?(\d{1,6})\]")
_TASK = re.compile(rb"^(\d{1,6}): ")


@dataclass(frozen=True, kw_only=True)
class Row:
    """Where one row stands in a segment's text: its beginning, and each column's span.

    Of what is read as JSON or as a Python dict `values` are the numbers where a text is read alone,
    `numbers` their spans where it stands for others of its shape; both go before `spans`.
    """

    start: int
    rank: Span | None
    spans: dict[str, Span]
    values: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, Span] = field(default_factory=dict)


def rows(chunk: Chunk, formats: Sequence[Format]) -> dict[str, Batch]:
    """The rows of each format that has any, in the order of the file."""
    found = segments(chunk, [*(known.token for known in formats), b"\x1b"])
    parts: dict[str, list[Batch]] = {}
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
    for known in formats:
        _put(parts, known, _one_by_one(known, chunk, found, np.flatnonzero(left)))
    return {
        known.name: in_order(parts[known.name], is_redrawn=known.is_redrawn)
        for known in formats
        if known.name in parts
    }


def _put(parts: dict[str, list[Batch]], known: Format, part: Batch | None) -> None:
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


def rows_in(known: Format, text: bytes) -> Iterator[Row]:
    """The rows that a format finds in a segment's text."""
    if known.read is not None:
        for place, values in known.read(text):
            yield replace(_row(known, text, place, spans={}), values=values)
        return
    assert known.pattern is not None
    assert known.fields is not None
    for match in known.pattern.finditer(text):
        spans = {name: field.span(match) for name, field in known.fields.items()}
        yield _row(known, text, match.start(), spans=spans)


def rows_of_shape(known: Format, text: bytes) -> list[Row] | None:
    """The rows of a text that stands for all of its shape; None where it cannot."""
    if known.read is None:
        return list(rows_in(known, text))
    found = number_places(known.read, text)
    if found is None:
        return None
    return [replace(_row(known, text, one.start, spans={}), numbers=one.spans) for one in found]


def _row(known: Format, text: bytes, start: int, *, spans: dict[str, Span]) -> Row:
    """A row with what its line's head adds: the rank that it names, and a time stamp."""
    cut = max(0, start - LONGEST_HEAD)
    head = text[cut:start]
    rank = _RANK.search(head) or (_TASK.search(head) if cut == 0 else None)
    stamp = find_stamp(head) if known.has_stamps else None
    return Row(
        start=start,
        rank=(cut + rank.start(1), cut + rank.end(1)) if rank else None,
        spans=spans | ({"time": (cut + stamp[0], cut + stamp[1])} if stamp else {}),
    )


def _convert(known: Format, name: str) -> Callable[[Texts], Floats]:
    """How the texts of a column become numbers."""
    field = (known.fields or {}).get(name)
    if field is None:
        return moments
    convert = field.convert or decimals
    return convert if field.per == 1 else lambda texts: convert(texts) / field.per


@dataclass(frozen=True, kw_only=True)
class _Alike:
    """Texts of one shape [n, length], and the places in them that are no terminal code's."""

    texts: Texts
    kept: Ints

    def cut(self, span: Span) -> Texts:
        """A part of each text, by its span in a text without terminal codes."""
        places = self.kept[slice(*span)]
        first, last = int(places[0]), int(places[-1])
        if last - first < len(places):
            return self.texts[:, first : last + 1]
        return self.texts[:, places]


def _alike(known: Format, row: Row, alikes: _Alike, places: _Places) -> Batch | None:
    """The row that each of many texts of one shape holds at the same place."""
    columns = {
        name: _convert(known, name)(alikes.cut(span))
        for name, span in row.spans.items()
        if span[0] < span[1]
    }
    for name, span in row.numbers.items():
        columns[name] = decimals(alikes.cut(span)) / known.per.get(name, 1.0)
    size = len(alikes.texts)
    rank = integers(alikes.cut(row.rank)) if row.rank else np.full(size, -1)
    place = places.start + row.start
    return batch(columns, line=places.line, place=place, rank=rank.astype(np.int64))


def _one_by_one(known: Format, chunk: Chunk, found: Segments, indices: Ints) -> Batch | None:
    """The rows in segments that no others are like."""
    data, has_codes = chunk.data, b"\x1b" in chunk.data
    if not len(indices) or (not has_codes and known.token not in data):
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
    columns = {name: each_shape(column, _convert(known, name)) for name, column in texts.items()}
    for name in dict.fromkeys(name for row in told for name in row.values):
        absent = 0.0 if name == "step" else np.nan
        values = np.array([row.values.get(name, absent) for row in told])
        columns[name] = values / known.per.get(name, 1.0)
    places = _places(chunk, found, np.array(of))
    place = places.start + np.array([row.start for row in told])
    return batch(columns, line=places.line, place=place, rank=np.array(ranks))
