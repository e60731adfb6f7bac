"""Read the rows of text formats piece by piece; the first format with a run is the file's."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows, join
from analysis.read.exit_causes import ExitCause, exit_causes
from analysis.read.run_log import Ints
from analysis.read.text.patterns import STAMP, Format, moments, numbers
from analysis.read.text.pieces import Piece, pieces
from analysis.stats.intervals import Floats

LONGEST_HEAD = 400
_RANK = re.compile(rb"\[[Rr][Aa][Nn][Kk] ?(\d{1,6})\]")
_TASK = re.compile(rb" {0,5}(\d{1,6}): ")


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """The rows of one piece of a file by format, and the lines on how a job ended."""

    rows: dict[str, Rows]
    causes: list[ExitCause]


def scan(path: Path, formats: Sequence[Format]) -> Iterator[Scanned]:
    """Yield the file piece by piece with its rows, by formats in the order of trust.

    Formats less trusted than one with losses are dropped, and exit causes are looked for where
    they can count: after the last row, and in pieces in which a step falls.
    """
    for piece in pieces(path):
        found: dict[str, Rows] = {}
        for known in formats:
            rows = rows_of(known, piece) if known in formats else None
            if rows is not None:
                found[known.name] = rows
                formats = _still_needed(formats, known, rows)
        causes = exit_causes(piece, _last_row(piece, found))
        yield Scanned(rows=found, causes=causes)


def _still_needed(formats: Sequence[Format], known: Format, rows: Rows) -> Sequence[Format]:
    """Return the formats up to one with losses; bars too if it has no steps of its own."""
    if np.isnan(rows["loss"]).all():
        return formats
    place = formats.index(known) + 1
    rest = () if "step" in rows else formats[place:]
    return [*formats[:place], *(one for one in rest if one.is_redrawn)]


def _last_row(piece: Piece, found: dict[str, Rows]) -> int:
    """Return where the last row of a piece begins; 0 if an attempt may have ended before it."""
    if not found or any((np.diff(rows["step"]) < 0).any() for rows in found.values()):
        return 0
    return min(int(rows["place"][-1]) for rows in found.values()) - piece.offset


def rows_of(known: Format, piece: Piece) -> Rows | None:
    """Return the rows of a format in a piece, None if it has none."""
    if not any(token in piece.text for token in known.tokens):
        return None
    matches = list(known.pattern.finditer(piece.text))
    if not matches:
        return None
    starts = np.array([match.start() for match in matches], dtype=np.int64)
    columns = known.columns(matches)
    columns |= _heads(known, piece.text, starts)
    columns["line"] = piece.lines_at(starts).astype(np.float64)
    columns["place"] = (starts + piece.offset).astype(np.float64)
    rows = Rows(columns)
    if "step" in columns:
        # NaN is kept: a row of a record may stand below its step.
        rows = rows.take(~((columns["step"] < 0) | (columns["step"] >= LARGEST_STEP)))
    if known.is_redrawn:
        rows = last_drawings(rows)
    return rows if len(rows) else None


def last_drawings(rows: Rows) -> Rows:
    """Return the last drawing of each step of a bar, whose loss is that step's."""
    differs = (np.diff(rows["step"]) != 0) | (np.diff(rows["group"]) != 0)
    return rows.take(np.append(differs, True))


def _heads(known: Format, text: bytes, starts: Ints) -> dict[str, Floats]:
    """Return the `rank`, the `time` and what else stands before rows in their lines."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    begins = np.concatenate([[0], ends + 1])[np.searchsorted(ends, starts)]
    begins = np.maximum(begins, starts - LONGEST_HEAD)
    starts = starts + known.head_chars
    if not (known.has_head or known.head) or (begins == starts).all():
        return {}
    bounds = zip(begins.tolist(), starts.tolist(), strict=True)
    heads = [text[begin:start] for begin, start in bounds]
    if known.head_chars:
        heads = [head.partition(b"\n")[0] for head in heads]
    joined = b"\n".join(heads)
    found: dict[str, list[re.Match[bytes] | None]] = {}
    if known.head is not None:
        [name] = known.head.groupindex
        found[name] = [known.head.search(head) for head in heads]
    if known.has_head and (b"[r" in joined or b"[R" in joined):
        found["rank"] = [_RANK.search(head) or _TASK.match(head) for head in heads]
    elif known.has_head and b": " in joined:
        found["rank"] = [_TASK.match(head) for head in heads]
    if known.has_head and b":" in joined:
        found["time"] = [STAMP.search(head) for head in heads]
    columns = {}
    for name, matches in found.items():
        rows = [row for row, match in enumerate(matches) if match]
        if rows:
            texts = [match[match.lastindex or 0] for match in matches if match]
            columns[name] = np.full(len(heads), np.nan)
            columns[name][rows] = (moments if name == "time" else numbers)(texts)
    return columns


def scanned(path: Path, formats: Sequence[Format]) -> tuple[dict[str, Rows], list[ExitCause]]:
    """Return all rows of a file by format, and its exit causes."""
    found: dict[str, list[Rows]] = {}
    causes: list[ExitCause] = []
    for one in scan(path, formats):
        causes += one.causes
        for name, rows in one.rows.items():
            found.setdefault(name, []).append(rows)
    return {name: join(parts) for name, parts in found.items()}, causes
