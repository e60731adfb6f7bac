"""Time stamps at the head of log lines, as seconds since 1970; all are taken as UTC."""

import re
from functools import lru_cache

import numpy as np

from analysis.read.text.shapes import Texts, integers
from analysis.stats.intervals import Floats

_STAMP = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?")
_STAMP_US = re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d")


def find_stamp(head: bytes) -> tuple[int, int] | None:
    """The (start, end) of the first time stamp in what stands before a row."""
    match = _STAMP.search(head) or _STAMP_US.search(head)
    return match.span() if match else None


def moments(texts: Texts) -> Floats:
    """Seconds since 1970 of time stamps of one shape [n]; NaN for what no clock shows."""
    is_american = texts[0, 2] == ord("/")
    dates = texts[:, [6, 7, 8, 9, 2, 0, 1, 2, 3, 4] if is_american else slice(10)]
    clock = texts[:, 11:]
    midnight = _midnights(dates)
    hours, minutes, seconds = (integers(clock[:, at : at + 2]) for at in (0, 3, 6))
    sound = (hours < 24) & (minutes < 60) & (seconds <= 60)
    whole = midnight + hours * 3600 + minutes * 60 + seconds
    digits = clock.shape[1] - 9
    fraction = integers(clock[:, 9:]) / 10.0**digits if digits > 0 else 0.0
    return np.where(sound, whole + fraction, np.nan)


def _midnights(dates: Texts) -> Floats:
    """Seconds since 1970 at the beginning of days `YYYY-MM-DD` [n], which seldom change."""
    number = integers(dates)
    begun = np.flatnonzero(np.diff(number, prepend=np.nan) != 0)
    days = [dates[row].tobytes().replace(b"/", b"-") for row in begun]
    lengths = np.diff(begun, append=len(dates))
    return np.repeat(np.array([_midnight(day) for day in days]), lengths)


@lru_cache(maxsize=1024)
def _midnight(day: bytes) -> float:
    """Seconds since 1970 at the beginning of a day, NaN for a day that is in no calendar."""
    try:
        return float(np.datetime64(day.decode(), "s").astype(np.int64))
    except ValueError:
        return np.nan
