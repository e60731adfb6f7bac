"""A user's pattern for the lines of a text: named groups that are columns.

A group's name is the column that it fills (`analysis.read.vocabulary`). Some kinds need more:

    NAME_ms      milliseconds, kept as NAME_s
    NAME_clock   `MM:SS`, `H:MM:SS`, `D days, H:MM:SS` or `1d 02h 30m`, kept as NAME_s
    kimg         thousands of images, kept as images
    duration_s   a time of which the values tell whether it passed since the start or per record
    stamp        a time stamp, or a time of day, kept as time
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from analysis.read.columns import Rows, join, spread
from analysis.read.text.pieces import Piece, in_english
from analysis.read.text.values import clocks, moments, numbers
from analysis.stats.intervals import Floats
from configs.errors import Unreadable


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches in lines; raise `Unreadable` if it cannot be used."""
    try:
        # Texts are read as Latin-1, in which each byte is a character.
        found = re.compile(in_english(pattern.encode()).decode("latin-1"), re.MULTILINE)
    except re.error as error:
        raise Unreadable(f"--pattern {pattern!r}: {error}") from None
    if not {"step", "epoch"} & found.groupindex.keys():
        raise Unreadable(f"--pattern {pattern!r}: needs a group (?P<step>...) or (?P<epoch>...)")
    return found


def matched_rows(pieces: Iterable[Piece], pattern: re.Pattern[str]) -> tuple[Rows, int]:
    """Return a row for each match, and the number of lines in the text."""
    parts, lines = [], 0
    for piece in pieces:
        lines += len(piece.newlines)
        matches = list(pattern.finditer(piece.text))
        if not matches:
            continue
        places = np.array([match.start() for match in matches], dtype=np.int64)
        columns = {
            "line": piece.lines_at(places).astype(np.float64),
            "place": (places + piece.offset).astype(np.float64),
        }
        for name in pattern.groupindex:
            texts = [match[name] for match in matches]
            at = [row for row, text in enumerate(texts) if text is not None]
            if at:
                column, values = _column(name, [texts[row] for row in at])
                columns[column] = spread(at, values, len(texts))
        parts.append(Rows(columns))
    return join(parts) if parts else Rows({}), lines


def _column(name: str, texts: Sequence[str]) -> tuple[str, Floats]:
    """Return the column that a group fills, and its values [n]."""
    if name == "stamp":
        times = moments(texts)
        return ("time", times) if np.isfinite(times).any() else ("day_s", clocks(texts))
    if name.endswith("_clock"):
        return name.removesuffix("_clock") + "_s", clocks(texts)
    if name.endswith("_ms"):
        return name.removesuffix("_ms") + "_s", numbers(texts) / 1e3
    if name == "kimg":
        return "images", 1e3 * numbers(texts)
    return name, numbers(texts)
