"""Where one row, and each of its columns, stands in a line of text."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from analysis.read.text.batch import Format, Span
from analysis.read.text.places import number_places
from analysis.read.text.shapes import Texts, decimals
from analysis.read.text.stamps import find_stamp, moments
from analysis.stats.intervals import Floats

LONGEST_HEAD = 400
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


def convert_of(known: Format, name: str) -> Callable[[Texts], Floats]:
    """How the texts of a column become numbers."""
    field = (known.fields or {}).get(name)
    if field is None:
        return moments
    convert = field.convert or decimals
    return convert if field.per == 1 else lambda texts: convert(texts) / field.per


def elastic_spans(known: Format, row: Row) -> list[Span]:
    """The columns of a row in which the number of digits means nothing but their value."""
    plain = (
        span
        for name, span in row.spans.items()
        if (field := (known.fields or {}).get(name)) and field.convert is None
    )
    return [span for span in (*plain, *row.numbers.values()) if span[0] < span[1]]
