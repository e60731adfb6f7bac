"""Read the rows of text formats piece by piece."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows, join
from analysis.read.run_log import Ints
from analysis.read.text.patterns import STAMP, Format, moments, numbers
from analysis.read.text.pieces import Piece, pieces
from analysis.stats.intervals import Floats

LONGEST_HEAD = 400
# What may stand before a match, each with bytes that are then there; later ones are preferred.
HEADS = (
    ("rank", b": ", re.compile(rb"\A {0,5}(\d{1,6}): ")),
    ("rank", b"[r", re.compile(rb"\[rank ?(\d{1,6})\]")),
    ("rank", b"[R", re.compile(rb"\[R(?:ank|ANK) ?(\d{1,6})\]")),
    ("time", b":", re.compile(b"(" + STAMP.pattern + b")")),
    ("epoch", b"poch", re.compile(rb"poch\D{0,4}(\d{1,9})")),
)


def scan(path: Path, formats: Sequence[Format]) -> dict[str, Rows]:
    """Return the rows of a file by format; the formats come in the order of trust.

    Formats less trusted than one with losses are dropped, but bars stay if that one has no steps.
    """
    found: dict[str, list[Rows]] = {}
    for piece in pieces(path):
        for known in formats:
            rows = rows_of(known, piece) if known in formats else None
            if rows is None:
                continue
            found.setdefault(known.name, []).append(rows)
            if not np.isnan(rows["loss"]).all():
                place = formats.index(known) + 1
                rest = () if "step" in rows else formats[place:]
                formats = [*formats[:place], *(one for one in rest if one.is_redrawn)]
    return {name: join(parts) for name, parts in found.items()}


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
    """Return the columns of what stands before rows in their lines."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    begins = np.concatenate([[0], ends + 1])[np.searchsorted(ends, starts)]
    begins = np.maximum(begins, starts - LONGEST_HEAD)
    upto = starts + known.head_chars
    tried = [head for head in HEADS if head[0] in known.heads and head[1] in text]
    if not tried or (begins == upto).all():
        return {}
    heads = [text[a:b] for a, b in zip(begins.tolist(), upto.tolist(), strict=True)]
    if known.head_chars:
        heads = [head.partition(b"\n")[0] for head in heads]
    joined = b"\n".join(heads)
    columns: dict[str, Floats] = {}
    for name, token, pattern in tried:
        if token in joined:
            matches = [pattern.search(head) for head in heads]
            rows = [row for row, match in enumerate(matches) if match]
            texts = [match[1] for match in matches if match]
            if rows:
                column = columns.setdefault(name, np.full(len(heads), np.nan))
                column[rows] = (moments if name == "time" else numbers)(texts)
    return columns
