"""Time stamps at the head of log lines, as seconds since 1970; all are taken as UTC."""

import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.noise import Floats
from analysis.read.chunks import Chunk
from analysis.read.log import Ints

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
_STAMP_US = re.compile(rb"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)")
_FORM = b"dddd-dd-dd dd:dd:dd.ddd"
_DIGITS = [place for place, sign in enumerate(_FORM) if sign == ord("d")]
WIDEST = 120


def stamps_before(chunk: Chunk, starts: Ints) -> Floats:
    """The time stamp before each position on its line [n], NaN where there is none.

    Lines of one log have it at one column: where the first line has its own, the others are read
    all at once, and one by one only where they differ.
    """
    first = chunk.head(int(starts[0]))
    match = _STAMP.search(first)
    if match is None:
        return np.array([stamp(chunk.head(start)) for start in starts.tolist()])
    ends = np.concatenate([[-1], chunk.newlines])
    begins = ends[np.searchsorted(chunk.newlines, starts)] + 1
    column = int(starts[0]) - len(first) + match.start() - int(begins[0])
    found = _at(chunk, begins + column, starts)
    for row in np.flatnonzero(np.isnan(found)):
        found[row] = stamp(chunk.head(int(starts[row])))
    return found


def _at(chunk: Chunk, places: Ints, ends: Ints) -> Floats:
    """The stamps that begin at these places [n] and end before `ends`, NaN where none does."""
    raw = np.frombuffer(chunk.data, dtype=np.uint8)
    width = len(_FORM)
    inside = (places >= 0) & (places + width <= len(raw)) & (places + 19 <= ends)
    rows = (
        raw[np.where(inside, places, 0)[:, None] + np.arange(width)] if len(raw) >= width else None
    )
    if rows is None:
        return np.full(len(places), np.nan)
    digits = rows[:, _DIGITS].astype(np.int64) - 48
    is_digit = (digits >= 0) & (digits <= 9)
    good = inside & is_digit[:, :14].all(axis=1) & _has_marks(rows)
    if not good.any():
        return np.full(len(places), np.nan)
    has_fraction = is_digit[:, 14:].all(axis=1) & np.isin(rows[:, 19], (44, 46))
    has_fraction &= places + width <= ends
    longer = np.minimum(places + width, len(raw) - 1)
    good &= ~(has_fraction & (raw[longer] >= 48) & (raw[longer] <= 57))
    seconds = _days(rows, good) + digits[:, 8:14] @ np.array([36000, 3600, 600, 60, 10, 1])
    seconds += np.where(has_fraction, digits[:, 14:] @ np.array([100, 10, 1]) / 1e3, 0.0)
    return np.where(good, seconds, np.nan)


def _has_marks(rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether each row has the signs of a stamp between its digits, and a sound time of day."""
    marks = {4: b"-", 7: b"-", 13: b":", 16: b":"}
    good = np.isin(rows[:, 10], (32, 84))
    for place, sign in marks.items():
        good &= rows[:, place] == sign[0]
    hour = (rows[:, 11].astype(np.int64) - 48) * 10 + rows[:, 12] - 48
    return good & (hour < 24) & (rows[:, 14] < 54) & (rows[:, 17] < 54)


def _days(rows: NDArray[np.uint8], good: NDArray[np.bool_]) -> Floats:
    """Midnight of each row's day; a log has few different ones."""
    dates = np.ascontiguousarray(rows[:, :10]).view("S10")[:, 0]
    days, which = np.unique(np.where(good, dates, b"1970-01-01"), return_inverse=True)
    return np.array([_midnight(bytes(day)) for day in days])[which]


def stamp(text: bytes) -> float:
    """The first time stamp in a text, NaN without one."""
    match = _STAMP.search(text)
    if match:
        day, clock, fraction = match.groups()
    else:
        american = _STAMP_US.search(text)
        if not american:
            return np.nan
        month, date, year, clock = american.groups()
        day, fraction = b"-".join((year, month, date)), None
    hours, minutes, seconds = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    if hours > 23 or minutes > 59 or seconds > 60:
        return np.nan
    whole = _midnight(day) + hours * 3600 + minutes * 60 + seconds
    return whole + (float(b"0." + fraction) if fraction else 0.0)


@lru_cache(maxsize=1024)
def _midnight(day: bytes) -> float:
    """Seconds since 1970 at the beginning of a day, NaN for a day that is in no calendar."""
    try:
        return float(np.datetime64(day.decode(), "s").astype(np.int64))
    except ValueError:
        return np.nan
