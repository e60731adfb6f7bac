"""Numbers, durations and time stamps as logs print them."""

import math
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

Signs = NDArray[np.uint8]
# Powers of ten and whole numbers of so many digits are exact.
MOST_DIGITS = 15
_DAY_TIME = (
    r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?![\d:])(?: [AP]M\b)?(?: ?(?:[+-]\d\d:?\d\d|Z)\b)?"
)
STAMP = re.compile(
    r"(?<![\w.])(?:\d\d(?:\d\d)?[-/.]\d\d[-/.]\d\d(?:\d\d)?[ T_-]{1,3}|\d\d[-/]\d\d |"
    r"\d{8}[ T_-]|[IWEF]\d{4} |[A-Z][a-z]{2} {1,2}\d{1,2} )" + _DAY_TIME
)
_DATE_AND_TIME = re.compile(
    r"(?:[IWEF](?=\d))?(.+?)[ T_-]+((?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60)(?:\.\d+)?)?)"
    r"(?: ([AP])M)?"
)
# The hours and minutes that a clock is ahead of UTC, behind a time of day.
_ZONE = re.compile(r"(?:(?<=:\d\d)|(?<=\d{3})) ?(?:([+-])(\d\d):?(\d\d)|Z)$")
# Dates that are not ISO 8601, in the order in which they are tried.
_WITH_YEAR = ("%Y-%m-%d", "%Y%m%d", "%m-%d-%Y", "%m-%d-%y")
_WITHOUT_YEAR = ("%m-%d", "%m%d", "%b %d")
_CLOCK = re.compile(
    r"(?:(\d{1,5}) days?, ?)?(?:(\d{1,6}):)?(\d{1,4}):(\d\d(?:\.\d+)?)"
    r"|(?:(\d{1,5})d)? ?(?:(\d{1,2})h)? ?(?:(\d{1,3})m(?:in)?)? ?(?:(\d{1,2}(?:\.\d+)?)s(?:ec)?)?"
)
# A comma of decimals, for certain: `0,297`, `2,5`, `2,0348`; `2,035` may be thousands.
_DECIMALS = re.compile(r"^[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?:[eE][-+]?\d+)?$", re.MULTILINE)
# The year of a stamp without one. Differences are right except across a new year.
YEAR = 1972
HALF_DAY_S = 43_200.0


def number(text: str) -> float:
    """Return a printed number (`1,710`, `0,5`, `23.5%`): NaN if it is none, inf if not finite."""
    text = text.rstrip("%.,")
    try:
        found = float(text.replace(",", "." if _DECIMALS.match(text) else ""))
    except ValueError:
        return math.nan
    # Python accepts underscores in numbers; logs do not print them.
    if "_" in text:
        return math.nan
    return found if math.isfinite(found) else math.inf


def numbers(texts: Sequence[str]) -> Floats:
    """Return many printed numbers [n]; a comma of one is that of all."""
    joined = "\n".join(texts)
    if "," in joined:
        is_decimal = "." not in joined and _DECIMALS.search(joined)
        texts = joined.replace(",", "." if is_decimal else "").split("\n")
    try:
        if "_" in joined:
            raise ValueError
        found = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        each = {text: number(text) for text in set(texts)}
        return np.array([each[text] for text in texts], dtype=np.float64)
    return np.where(np.isfinite(found), found, np.inf)


def plain_numbers(
    signs: Signs, begin: Ints, end: Ints, *, is_clock: bool
) -> tuple[Floats, bool] | None:
    """Return the numbers [n] that stand between places of a text, and whether one has a point.

    A clock, `MM:SS` or `H:MM:SS`, is in seconds. Return None if one has other signs than digits, a
    point and these colons, or one of plus or minus, or if it has so many digits that their quotient
    by a power of ten may not be the number nearest to what is printed.
    """
    longest = int((end - begin).max(initial=0))
    if longest > MOST_DIGITS:
        return None
    passed, whole, colons = np.zeros((3, len(begin)), dtype=np.int64)
    decimals = np.full(len(begin), -1)
    for place in range(longest):
        at = begin + place
        is_inside = at < end
        sign = signs[np.where(is_inside, at, begin)]
        digit = sign - np.uint8(ord("0"))
        is_digit, is_point = is_inside & (digit < 10), is_inside & (sign == ord("."))
        is_colon = is_inside & (sign == ord(":")) & is_clock
        is_known = is_digit | is_point | is_colon | ~is_inside
        if place == 0 and not is_clock:
            is_known |= (sign == ord("-")) | (sign == ord("+"))
        if not is_known.all() or ((is_point | is_colon) & (decimals >= 0)).any():
            return None
        if is_colon.any():
            colons += is_colon
            passed = np.where(is_colon, 60 * (passed + whole), passed)
            whole = np.where(is_colon, 0, whole)
        whole = np.where(is_digit, 10 * whole + digit, whole)
        decimals += (is_digit & (decimals >= 0)) | is_point
    if is_clock and not ((colons >= 1) & (colons <= 2)).all():
        return None
    values = passed + whole / 10.0 ** np.maximum(decimals, 0)
    return np.where(signs[begin] == ord("-"), -values, values), bool((decimals >= 0).any())


def clocks(texts: Sequence[str]) -> Floats:
    """Return the seconds of durations [n]."""
    return np.array([clock_s(text) for text in texts])


@lru_cache(maxsize=4096)
def clock_s(text: str) -> float:
    """Return the seconds of a duration in one of these forms; NaN for anything else."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None or not match[0]:
        return math.nan
    units = [float(part or 0) for part in match.groups()]
    days, hours, minutes, seconds = (a + b for a, b in zip(units[:4], units[4:], strict=True))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def moments(texts: Sequence[str], *, day_first: bool = False) -> Floats:
    """Return the seconds since 1970 of time stamps [n], as UTC; NaN for an impossible one.

    A date such as `05/06/2023` has its month first, unless told otherwise.
    """
    if any(_ZONE.search(text) for text in (*texts[:1], *texts[-1:])):
        here = moments([_ZONE.sub("", text) for text in texts], day_first=day_first)
        return here - np.array([_ahead_s(text) for text in texts])
    spelled = "\n".join(texts).replace(",", ".").replace("/", "-").split("\n")
    with suppress(ValueError, UserWarning), warnings.catch_warnings():
        # NumPy warns of a time zone.
        warnings.simplefilter("error")
        return np.array(spelled, dtype="datetime64[us]").astype(np.int64) / 1e6
    if day_first:
        spelled = [re.sub(r"^(\d\d)([-.])(\d\d)\b", r"\3\2\1", text) for text in spelled]
    return np.array([_moment(text) for text in spelled])


def _ahead_s(text: str) -> float:
    """Return the seconds that the clock of a stamp is ahead of UTC."""
    match = _ZONE.search(text)
    if match is None or not match[1]:
        return 0.0
    return float(f"{match[1]}1") * (3600 * int(match[2]) + 60 * int(match[3]))


def likelier(month_first: Floats, day_first: Floats) -> Floats:
    """Return the reading of the stamps of a log [n] that has more of them, else less between."""

    def doubt(found: Floats) -> tuple[int, float]:
        known = found[~np.isnan(found)]
        return len(found) - len(known), float(np.ptp(known)) if len(known) else 0.0

    return min(month_first, day_first, key=doubt)


def _moment(text: str) -> float:
    match = _DATE_AND_TIME.fullmatch(text)
    if match is None:
        return math.nan
    passed = clock_s(match[2] if match[2].count(":") == 2 else f"{match[2]}:00")
    if match[3]:
        passed = passed % HALF_DAY_S + HALF_DAY_S * (match[3] == "P")
    return _midnight(match[1].replace(".", "-")) + passed


@lru_cache(maxsize=4096)
def _midnight(date: str) -> float:
    """Return the seconds from 1970 to the midnight at which a date begins, NaN for no date."""
    forms = [(date, form) for form in _WITH_YEAR]
    forms += [(f"{YEAR} {date}", f"%Y {form}") for form in _WITHOUT_YEAR]
    for text, form in forms:
        with suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    return math.nan
