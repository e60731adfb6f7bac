"""The lines of a piece, and the parts of lines redrawn with CR, that can hold a row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.read.run_log import Ints
from analysis.read.text.chunks import Chunk

PEEKED = 1 << 15
DENSE = 4


@dataclass(frozen=True, kw_only=True)
class Segments:
    """`n` parts of lines of a piece: where each starts and ends in it, without its line end.

    `line` is the number in the file of the line that each stands on.
    """

    start: Ints
    end: Ints
    line: Ints


def segments(chunk: Chunk, tokens: Sequence[bytes]) -> Segments:
    """Those that hold one of the tokens; where every few lines do, simply all of them."""
    has_returns = b"\r" in chunk.data
    ends = _ends(chunk, has_returns=has_returns)
    start = np.concatenate([[0], ends[:-1] + 1])
    begun = chunk.data[:PEEKED]
    lines = begun.count(b"\n") + begun.count(b"\r") + 1
    if sum(begun.count(token) for token in tokens) * DENSE < lines:
        held = np.unique(np.searchsorted(ends, _places(chunk.data, tokens)))
        start, ends, numbers = start[held], ends[held], held
    else:
        numbers = np.arange(len(ends))
    if has_returns:
        numbers = np.searchsorted(chunk.newlines, start)
    return Segments(start=start, end=ends, line=chunk.line + numbers)


def _ends(chunk: Chunk, *, has_returns: bool) -> Ints:
    """Where each segment ends: at LF, at CR, and at the end of the piece."""
    size, ends = len(chunk.data), chunk.newlines
    if has_returns:
        returns = np.flatnonzero(np.frombuffer(chunk.data, dtype=np.uint8) == 13)
        ends = np.sort(np.concatenate([ends, returns]))
    return ends if len(ends) and ends[-1] == size - 1 else np.concatenate([ends, [size]])


def _places(data: bytes, tokens: Sequence[bytes]) -> list[int]:
    """Where the tokens stand."""
    found = []
    for token in dict.fromkeys(tokens):
        place = data.find(token)
        while place >= 0:
            found.append(place)
            place = data.find(token, place + len(token))
    return found
