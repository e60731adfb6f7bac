"""Declare a text format: tokens, one pattern with named groups, and what the groups mean.

A group's name is the column that it fills (`analysis.read.columns`). Some kinds need more:

    NAME_ms      milliseconds, kept as NAME_s
    NAME_clock   `MM:SS`, `H:MM:SS`, `D days, H:MM:SS` or `1d 02h 30m`, kept as NAME_s
    kimg         thousands of images, kept as images
    per_s        a printed rate, `4.2it/s` or `1.3s/it`, kept as steps_per_s
    pairs        `name: value` pairs, each a column
    json         a JSON object, whose columns the format's `entry` returns
    stamp        a time stamp, kept as time
    record       opens a record of several lines: the matches up to the next one are one row
    group        tells apart series that one format prints side by side: the longest is read
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from operator import methodcaller

import numpy as np

from analysis.read.columns import MOST_COLUMNS, Cells, by_preference, spread
from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

PAIR = re.compile(
    rb"([A-Za-z_][\w./() -]{0,60}?)[ \t]{0,40}+[:=][ \t]*+([-+]?(?:\.?\d[-+.\w]*|nan|inf))"
)
STAMP = re.compile(
    rb"\d\d(?:\d\d[-/]\d\d[-/]\d\d[ T]|/\d\d(?:/\d{4})? )\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
)
_ODD_STAMP = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)(?:-(\d{4}))?[ T](\d\d):(\d\d):([\d.]+)")
_CLOCK = re.compile(
    rb"(?:(\d{1,5}) days?, ?)?(?:(\d{1,6}):)?(\d{1,4}):(\d\d(?:\.\d+)?)"
    rb"|(?:(\d{1,5})d)? ?(?:(\d{1,2})h)? ?(?:(\d{1,2})m)? ?(?:(\d{1,2})s)?"
)
# The year of a stamp without one. Differences are right except across a new year.
YEAR = 1972


def _no_entry(text: bytes) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Format:
    """A kind of text log.

    Every line that `pattern` matches holds one of `tokens`. A pattern sees lines without terminal
    codes, and the redrawn parts of a line as lines of their own; it must not match across lines.
    `rename` maps the names of pairs to columns where `ALIASES` would be wrong. `heads` are columns
    (of `analysis.read.text.scan.HEADS`) that may stand before a match, or in its first
    `head_chars`. If `is_redrawn`, the last drawing of a step counts. With `epochs_from`, the number
    of the first epoch, `step` is one of `of` in an `epoch`.
    """

    name: str
    tokens: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    pair: re.Pattern[bytes] = PAIR
    rename: Mapping[str, str] = field(default_factory=dict)
    entry: Callable[[bytes], Mapping[str, float]] = _no_entry
    heads: tuple[str, ...] = ("rank", "time")
    head_chars: int = 0
    is_redrawn: bool = False
    epochs_from: int | None = None

    def columns(self, matches: Sequence[re.Match[bytes]]) -> dict[str, Floats]:
        """Return the columns [n] of the rows at `n` matches."""
        groups = list(zip(*[match.groups() for match in matches], strict=True))
        found: dict[str, Floats] = {}
        for name, number in self.pattern.groupindex.items():
            texts = groups[number - 1]
            rows, present = np.arange(len(texts)), list(texts)
            if None in texts:
                rows = np.array([row for row, text in enumerate(texts) if text is not None], int)
                present = [text for text in texts if text is not None]
            if name == "pairs":
                found = {**self._pairs(rows, present, len(texts)), **found}
            elif name == "json":
                found |= self._entries(texts)
            elif present:
                column, values = _convert(name, present)
                found[column] = spread(rows, values, len(texts))
        if self.epochs_from is not None and {"epoch", "of", "step"} <= found.keys():
            before = (found["epoch"] - self.epochs_from) * found["of"]
            found["step"] = found["step"] + np.where(before > 0, before, 0)
        return found

    def _pairs(self, rows: Ints, texts: Sequence[bytes], count: int) -> dict[str, Floats]:
        """Return the columns [count] of the texts with pairs that stand in some rows."""
        # Names and values, and the text before each pair: a line end in it begins another row.
        parts = self.pair.split(b"\n".join(texts))
        names, values, gaps = parts[1::3], parts[2::3], parts[:-1:3]
        number = {name: place for place, name in enumerate(dict.fromkeys(names))}
        if not number:
            return {}
        column = np.fromiter(map(number.__getitem__, names), np.int64, len(names))
        passed = np.fromiter(map(methodcaller("count", b"\n"), gaps), np.int64, len(gaps))
        row = rows[np.cumsum(passed)]
        table = np.full((len(number), count), np.nan)
        table[column, row] = numbers(values)
        found = {}
        for name, place in list(number.items())[:MOST_COLUMNS]:
            spelled = name.decode("utf-8", "replace").strip()
            own, converted = _in_our_unit(self.rename.get(spelled, spelled), table[place])
            found[own] = converted
        return by_preference(found)

    def _entries(self, texts: Sequence[bytes | None]) -> dict[str, Floats]:
        cells = Cells()
        for row, text in enumerate(texts):
            cells.add(row, self.entry(text or b""))
        return cells.columns(len(texts))


def _convert(name: str, texts: Sequence[bytes]) -> tuple[str, Floats]:
    """Return the column that a group fills, and its values [n]."""
    if name == "record":
        return name, np.ones(len(texts))
    if name == "stamp":
        return "time", moments(texts)
    if name == "per_s":
        value = numbers([text[:-4] for text in texts])
        is_rate = np.array([text.endswith(b"it/s") for text in texts])
        return "steps_per_s", np.where(is_rate, value, 1 / np.where(value > 0, value, np.nan))
    if name.endswith("_clock"):
        return name.removesuffix("_clock") + "_s", clocks(texts)
    return _in_our_unit(name, numbers(texts))


def _in_our_unit(name: str, values: Floats) -> tuple[str, Floats]:
    """Return the column of a name with a unit, and its values in seconds or images."""
    if name == "kimg":
        return "images", 1e3 * values
    if name.endswith("_ms"):
        return name.removesuffix("_ms") + "_s", values / 1e3
    return name, values


def number(text: bytes) -> float:
    """Return a printed number (`1,710`, `23.5%`, `1e-4`): NaN if it is none, inf if not finite."""
    try:
        found = float(text.replace(b",", b"").rstrip(b"%."))
    except ValueError:
        return math.nan
    # Python accepts underscores in numbers; logs do not print them.
    if b"_" in text:
        return math.nan
    return found if math.isfinite(found) else math.inf


def numbers(texts: Sequence[bytes]) -> Floats:
    """Return many printed numbers [n]."""
    joined = b"\n".join(texts)
    plain = joined.replace(b",", b"").split(b"\n") if b"," in joined else texts
    try:
        if b"_" in joined:
            raise ValueError
        found = np.fromiter(map(float, plain), np.float64, len(texts))
    except ValueError:
        each = {text: number(text) for text in set(texts)}
        return np.array([each[text] for text in texts], dtype=np.float64)
    return np.where(np.isfinite(found), found, np.inf)


def clocks(texts: Sequence[bytes]) -> Floats:
    """Return the seconds of durations [n]."""
    parts = [text.split(b":") for text in texts]
    if len(units := set(map(len, parts))) == 1 and (count := units.pop()) in (2, 3):
        table = numbers([*chain.from_iterable(parts)]).reshape(-1, count)
        if np.isfinite(table).all():
            return table @ np.array([3600.0, 60.0, 1.0])[-count:]
    return np.array([clock_s(text) for text in texts])


@lru_cache(maxsize=4096)
def clock_s(text: bytes) -> float:
    """Return the seconds of a duration in one of these forms; NaN for anything else."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None or not match[0]:
        return math.nan
    units = [float(part or 0) for part in match.groups()]
    days, hours, minutes, seconds = (a + b for a, b in zip(units[:4], units[4:], strict=True))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def moments(texts: Sequence[bytes]) -> Floats:
    """Return the seconds since 1970 of time stamps [n], as UTC; NaN for an impossible one."""
    spelled = b"\n".join(texts).decode("ascii").replace(",", ".").replace("/", "-").split("\n")
    try:
        found: Floats = np.array(spelled, dtype="datetime64[us]").astype(np.int64) / 1e6
    except ValueError:
        return np.array([_moment(text) for text in spelled], dtype=np.float64)
    return found


def _moment(text: str) -> float:
    """Return the time of one stamp that may not be ISO 8601: month first, or without a year."""
    match = _ODD_STAMP.fullmatch(text)
    if match is None:
        return math.nan
    before, month, day, after, hours, minutes, seconds = match.groups()
    try:
        midnight = datetime(int(before or after or YEAR), int(month), int(day), tzinfo=UTC)
    except ValueError:
        return math.nan
    if int(hours) > 23 or int(minutes) > 59 or float(seconds) > 60:
        return math.nan
    return midnight.timestamp() + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
