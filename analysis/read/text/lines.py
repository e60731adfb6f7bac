"""Cut the lines of a text at their numbers.

All lines of a piece are cut at once, by operations on arrays of its signs.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.read.run_log import Ints
from analysis.read.text.fields import LONGEST_LINE
from analysis.read.text.values import Signs

# What stands in a line for its numbers.
HOLE = "\0"
_WORD = re.compile(r"(?:nan|NaN|inf)\b")


def _one_of(signs: str) -> NDArray[np.bool_]:
    """Return which of the 256 signs are one of `signs`."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(signs.encode())] = True
    return table


_DIGIT, _POINT, _COMMA = _one_of("0123456789"), _one_of(".:"), _one_of(",_'")
_EXPONENT, _PLUS_OR_MINUS = _one_of("eE"), _one_of("+-")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The lines of a piece, as its `text` [k] and `signs` [k], which are its Latin-1 bytes.

    `gaps` [n] are the lines with a `HOLE` for each number. The numbers of all lines stand in the
    text from `begin` [m] to `end` [m]; `first` [n + 1] is the first of each line, and `place` [n]
    is where each line begins. `too_long` counts the lines that were cut.
    """

    text: str
    signs: Signs
    gaps: list[str]
    begin: Ints
    end: Ints
    first: Ints
    place: Ints
    too_long: int

    def whole(self, line: int) -> str:
        """Return a line as it was printed."""
        begin = int(self.place[line])
        end = self.text.find("\n", begin)
        return self.text[begin : end if end >= 0 else len(self.text)]

    def numbers(self, line: int) -> list[str]:
        """Return the numbers of a line as they were printed."""
        own = slice(self.first[line], self.first[line + 1])
        return self.texts(self.begin[own], self.end[own])

    def texts(self, begin: Ints, end: Ints) -> list[str]:
        """Return what stands between places of the text [m]."""
        pairs = zip(begin.tolist(), end.tolist(), strict=True)
        return [self.text[first:last] for first, last in pairs]


def cut_lines(printed: str) -> Lines:
    """Return the lines of a piece; those that are too long are cut."""
    signs = _signs(printed)
    place = np.concatenate([[0], np.flatnonzero(signs == ord("\n")) + 1])
    too_long = int((np.diff(place, append=len(printed) + 1) > LONGEST_LINE + 1).sum())
    if too_long:
        cut = (line[:LONGEST_LINE].ljust(len(line)) for line in printed.split("\n"))
        printed = "\n".join(cut)
        signs = _signs(printed)
    begin, end = _numbers(signs)
    if any(word in printed for word in ("nan", "NaN", "inf")):
        spans = [match.span() for match in _WORD.finditer(printed)]
        words = np.array(spans, dtype=np.int64).reshape(-1, 2)
        begin = np.concatenate([begin, words[:, 0]])
        end = np.concatenate([end, words[:, 1]])
        order = np.argsort(begin)
        begin, end = begin[order], end[order]
    gaps = _with_holes(signs, begin, end)
    return Lines(
        text=printed,
        signs=signs,
        gaps=gaps.split("\n"),
        begin=begin,
        end=end,
        first=np.append(np.searchsorted(begin, place), len(begin)),
        place=place,
        too_long=too_long,
    )


def _signs(text: str) -> Signs:
    return np.frombuffer(text.encode("latin-1"), dtype=np.uint8)


def _numbers(signs: Signs) -> tuple[Ints, Ints]:
    """Return where the numbers of a text begin [m] and end [m].

    A number is a run of digits and the runs that go on with it: after a point or a colon, in groups
    of three after a comma, `_` or `'`, and at last one after the sign of an exponent.
    """
    edges = np.flatnonzero(np.diff(_DIGIT[signs], prepend=False, append=False))
    begin, end = edges[::2], edges[1::2]
    if not len(begin):
        return begin, end
    between = begin[1:] - end[:-1]
    sign, after = signs[end[:-1]], signs[end[:-1] + 1]
    is_group = _COMMA[sign] & (end[1:] - begin[1:] == 3)
    goes_on = (between == 1) & (_POINT[sign] | is_group)
    has_sign = (between == 2) & _PLUS_OR_MINUS[after]
    is_exponent = _EXPONENT[sign] & ((between == 1) | has_sign)
    for run in np.flatnonzero(is_exponent[1:] & is_exponent[:-1]):
        # `3e4e5`: an exponent has none.
        is_exponent[run + 1] &= not is_exponent[run]
    goes_on[1:] &= ~is_exponent[:-1]
    is_last = ~(goes_on | is_exponent)
    return begin[np.append(True, is_last)], end[np.append(is_last, True)]


def _with_holes(signs: Signs, begin: Ints, end: Ints) -> str:
    """Return a text with a `HOLE` in place of each number."""
    change = np.zeros(len(signs) + 1, dtype=np.int8)
    change[begin] += 1
    change[end] -= 1
    is_kept = np.cumsum(change[:-1], dtype=np.int8) == 0
    is_kept[begin] = True
    shown = signs.copy()
    shown[begin] = ord(HOLE)
    return shown[is_kept].tobytes().decode("latin-1")
