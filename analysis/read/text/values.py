"""Numbers, durations and time stamps as logs print them."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain

import numpy as np

from analysis.stats.intervals import Floats

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAY_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
STAMP = re.compile(
    r"(?<![\w.])(?:\d\d(?:\d\d)?[-/.]\d\d[-/.]\d\d(?:\d\d)?[ T_-]{1,3}|\d\d[-/]\d\d |"
    r"\d{8}[ T_-]|[IWEF]\d{4} |[A-Z][a-z]{2} {1,2}\d{1,2} )" + _DAY_TIME
)
_STAMP = re.compile(
    r"(?:(?P<a>\d{2,4})-(?P<b>\d\d)(?:-(?P<c>\d{2,4}))?|(?P<day8>\d{8})|[IWEF](?P<glog>\d{4})"
    r"|(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}))[ T_-]+(\d\d):(\d\d):([\d.]+)"
)
_CLOCK = re.compile(
    r"(?:(\d{1,5}) days?, ?)?(?:(\d{1,6}):)?(\d{1,4}):(\d\d(?:\.\d+)?)"
    r"|(?:(\d{1,5})d)? ?(?:(\d{1,2})h)? ?(?:(\d{1,3})m(?:in)?)? ?(?:(\d{1,2}(?:\.\d+)?)s(?:ec)?)?"
)
# The year of a stamp without one. Differences are right except across a new year.
YEAR = 1972


def number(text: str) -> float:
    """Return a printed number (`1,710`, `23.5%`, `1e-4`): NaN if it is none, inf if not finite."""
    try:
        found = float(text.replace(",", "").rstrip("%."))
    except ValueError:
        return math.nan
    # Python accepts underscores in numbers; logs do not print them.
    if "_" in text:
        return math.nan
    return found if math.isfinite(found) else math.inf


def numbers(texts: Sequence[str]) -> Floats:
    """Return many printed numbers [n]."""
    joined = "\n".join(texts)
    plain = joined.replace(",", "").split("\n") if "," in joined else texts
    try:
        if "_" in joined:
            raise ValueError
        found = np.fromiter(map(float, plain), np.float64, len(texts))
    except ValueError:
        each = {text: number(text) for text in set(texts)}
        return np.array([each[text] for text in texts], dtype=np.float64)
    return np.where(np.isfinite(found), found, np.inf)


def clocks(texts: Sequence[str]) -> Floats:
    """Return the seconds of durations [n]."""
    parts = [text.split(":") for text in texts]
    if len(units := set(map(len, parts))) == 1 and (count := units.pop()) in (2, 3):
        table = numbers([*chain.from_iterable(parts)]).reshape(-1, count)
        if np.isfinite(table).all():
            return table @ np.array([3600.0, 60.0, 1.0])[-count:]
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


def moments(texts: Sequence[str]) -> Floats:
    """Return the seconds since 1970 of time stamps [n], as UTC; NaN for an impossible one.

    A date such as `05/06/2023` has its month first, unless that is impossible for one of them.
    """
    spelled = "\n".join(texts).replace(",", ".").replace("/", "-").split("\n")
    try:
        found: Floats = np.array(spelled, dtype="datetime64[us]").astype(np.int64) / 1e6
    except ValueError:
        found = np.array([_moment(text) for text in spelled], dtype=np.float64)
        if np.isnan(found).any():
            day_first = [_moment(text, day_first=True) for text in spelled]
            other = np.array(day_first, dtype=np.float64)
            found = other if np.isnan(other).sum() < np.isnan(found).sum() else found
    return found


def _moment(text: str, *, day_first: bool = False) -> float:
    """Return the time of one stamp that may not be ISO 8601."""
    match = _STAMP.fullmatch(text.strip().replace(".", "-", 2 * (text.count(".") > 1)))
    if match is None:
        return math.nan
    hours, minutes, seconds = match.groups()[-3:]
    try:
        midnight = datetime(*_date(match, day_first=day_first), tzinfo=UTC)
        passed = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except (ValueError, OverflowError):
        return math.nan
    if int(hours) > 23 or int(minutes) > 59 or float(seconds) > 60:
        return math.nan
    return midnight.timestamp() + passed


def _date(match: re.Match[str], *, day_first: bool) -> tuple[int, int, int]:
    """Return year, month and day; raise `ValueError` for an unknown month."""
    if match["day8"]:
        return int(match["day8"][:4]), int(match["day8"][4:6]), int(match["day8"][6:])
    if match["glog"]:
        return YEAR, int(match["glog"][:2]), int(match["glog"][2:])
    if match["month"]:
        return YEAR, _MONTHS.index(match["month"].lower()) + 1, int(match["day"])
    a, b, c = match["a"], match["b"], match["c"]
    if len(a) == 4 and c:
        return int(a), int(b), int(c)
    if c is not None and len(c) == 2:
        return 2000 + int(a), int(b), int(c)
    year = int(c) if c else YEAR
    return (year, int(b), int(a)) if day_first else (year, int(a), int(b))
