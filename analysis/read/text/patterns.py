"""A text format: tokens, one pattern with named groups, and what the groups mean.

A group's name is the column that it fills (`analysis.read.vocabulary`). Some kinds need more:

    NAME_ms      milliseconds, kept as NAME_s
    NAME_clock   `MM:SS`, `H:MM:SS`, `D days, H:MM:SS` or `1d 02h 30m`, kept as NAME_s
    kimg         thousands of images, kept as images
    per_s        a printed rate, `4.2it/s` or `1.3s/it`, kept as steps_per_s
    duration_s   a time of which the values tell whether it passed since the start or per record
    pairs        `name: value` pairs, each a column; so is `before`
    json         a JSON object, whose columns the format's `entry` returns
    stamp        a time stamp, or a time of day, kept as time
    record       opens a record of several lines: the matches up to the next one are one row
    group        tells apart series that one format prints side by side: the longest is read
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller

import numpy as np

from analysis.read.columns import MOST_COLUMNS, Cells, by_preference, spread
from analysis.read.run_log import Ints
from analysis.read.text.values import clocks, moments, numbers
from analysis.read.vocabulary import column_of
from analysis.stats.intervals import Floats

PAIR = re.compile(
    rb"([A-Za-z_][\w./() -]{0,60}?)[ \t]{0,40}+[:=][ \t]*+([-+]?(?:\.?\d[-+.\w]*|nan|inf))"
)
_PAIRS = ("pairs", "before")


def _no_entry(text: bytes) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Format:
    """A kind of text log.

    Every line that `pattern` matches holds one of `tokens`. A pattern sees lines without terminal
    codes, and the redrawn parts of a line as lines of their own; it must not match across lines.
    `groups` gives the column and the factor of groups that are not named by their columns, and
    `rename` the columns of pairs where the vocabulary would be wrong. If `is_redrawn`, the last
    drawing of a step counts. `axis` is what `step` counts. A match with `unless` in its group
    `before` is none. If `is_certain`, its lines are those of no other trainer.
    """

    name: str
    tokens: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    pair: re.Pattern[bytes] = PAIR
    rename: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    entry: Callable[[bytes], Mapping[str, float]] = _no_entry
    heads: tuple[str, ...] = ("rank", "time")
    unless: re.Pattern[bytes] | None = None
    is_redrawn: bool = False
    is_certain: bool = False
    axis: str = "step"
    uncertain: Mapping[str, str] = field(default_factory=dict)

    def columns(self, matches: Sequence[re.Match[bytes]]) -> dict[str, Floats]:
        """Return the columns [n] of the rows at `n` matches."""
        groups = list(zip(*[match.groups() for match in matches], strict=True))
        found: dict[str, Floats] = {}
        # Pairs last: a group of its own counts before a pair of the same column.
        named = sorted(self.pattern.groupindex.items(), key=lambda item: item[0] in _PAIRS)
        for name, place in named:
            texts = groups[place - 1]
            rows, present = np.arange(len(texts)), list(texts)
            if None in texts:
                rows = np.array([row for row, text in enumerate(texts) if text is not None], int)
                present = [text for text in texts if text is not None]
            if not present:
                continue
            if name in _PAIRS:
                found = {**self._pairs(rows, present, len(texts)), **found}
            elif name == "json":
                found |= self._entries(texts)
            else:
                column, values = self._convert(name, present)
                values = spread(rows, values, len(texts))
                if column in found:
                    values = np.where(np.isnan(found[column]), values, found[column])
                found[column] = values
        return found

    def _convert(self, name: str, texts: Sequence[bytes]) -> tuple[str, Floats]:
        """Return the column that a group fills, and its values [n]."""
        if name in self.groups:
            column, factor = self.groups[name]
            is_clock = b":" in texts[0]
            return column, clocks(texts) if is_clock else factor * numbers(texts)
        if name == "record":
            return name, np.ones(len(texts))
        if name == "stamp":
            times = moments(texts)
            return ("time", times) if np.isfinite(times).any() else ("day_s", clocks(texts))
        if name == "per_s":
            value = numbers([re.match(rb"[\d.]*", text)[0] for text in texts])  # type: ignore[index]
            is_rate = np.array([text.endswith(b"/s") for text in texts])
            return "steps_per_s", np.where(is_rate, value, 1 / np.where(value > 0, value, np.nan))
        if name.endswith("_clock"):
            return name.removesuffix("_clock") + "_s", clocks(texts)
        return in_our_unit(name, numbers(texts))

    def _pairs(self, rows: Ints, texts: Sequence[bytes], count: int) -> dict[str, Floats]:
        """Return the columns [count] of the texts with pairs that stand in some rows."""
        # Names and values, and the text before each pair: a line end in it begins another row.
        parts = self.pair.split(b"\n".join(texts))
        names, values, gaps = parts[1::3], parts[2::3], parts[:-1:3]
        place = {name: place for place, name in enumerate(dict.fromkeys(names))}
        if not place:
            return {}
        column = np.fromiter(map(place.__getitem__, names), np.int64, len(names))
        passed = np.fromiter(map(methodcaller("count", b"\n"), gaps), np.int64, len(gaps))
        row = rows[np.cumsum(passed)]
        table = np.full((len(place), count), np.nan)
        table[column, row] = numbers(values)
        found = {}
        for name, at in list(place.items())[:MOST_COLUMNS]:
            spelled = name.decode("utf-8", "replace").strip()
            own = "duration_s" if column_of(spelled) == "time" else spelled
            own, converted = in_our_unit(self.rename.get(spelled, own), table[at])
            found[own] = converted
        return by_preference(found)

    def _entries(self, texts: Sequence[bytes | None]) -> dict[str, Floats]:
        cells = Cells()
        for row, text in enumerate(texts):
            cells.add(row, self.entry(text or b""))
        return cells.columns(len(texts))


def in_our_unit(name: str, values: Floats) -> tuple[str, Floats]:
    """Return the column of a name with a unit, and its values in seconds or images."""
    if name == "kimg":
        return "images", 1e3 * values
    if name.endswith("_ms"):
        return name.removesuffix("_ms") + "_s", values / 1e3
    return name, values
