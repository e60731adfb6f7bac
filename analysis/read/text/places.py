"""Where the numbers stand that a reader takes from a text: each is replaced by its ordinal.

What the reader then gives are ordinals, so that it says which numbers it wants without being told
how to find them: of texts that differ in their digits only (see `shapes`) these are the same.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from analysis.read.text.batch import Span
from analysis.read.text.shapes import SHAPE, number

SHAPES_KEPT = 256

Told = Sequence[tuple[int, dict[str, float]]]
_NUMBER = re.compile(rb"(?<![\w.+-])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.+-])")


@dataclass(frozen=True, kw_only=True)
class RowSpan:
    """Where a row begins in a text, and the span of each of its numbers."""

    start: int
    spans: dict[str, Span]


def number_places(read: Callable[[bytes], Told], text: bytes) -> tuple[RowSpan, ...] | None:
    """Where the rows that `read` finds have their numbers; None where that is not sure.

    It is not where a name holds a digit, which may be another one in a text of the same shape, or
    where a value is not the very number that stands at its place.
    """
    return _places(read, text.translate(SHAPE).replace(b"0", b"1"))


@lru_cache(maxsize=SHAPES_KEPT)
def _places(read: Callable[[bytes], Told], text: bytes) -> tuple[RowSpan, ...] | None:
    places = [match.span() for match in _NUMBER.finditer(text)]
    ordinals = count()
    told, wanted = read(text), read(_NUMBER.sub(lambda _: b"%d" % next(ordinals), text))
    if len(told) != len(wanted):
        return None
    found = []
    for (start, values), (_, which) in zip(told, wanted, strict=True):
        if values.keys() != which.keys() or any(re.search(r"\d", name) for name in values):
            return None
        if not all(ordinal in range(len(places)) for ordinal in which.values()):
            return None
        spans = {name: places[int(ordinal)] for name, ordinal in which.items()}
        if any(number(text[slice(*spans[name])]) != value for name, value in values.items()):
            return None
        found.append(RowSpan(start=start, spans=spans))
    return tuple(found)
