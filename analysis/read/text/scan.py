"""Read the rows of text formats piece by piece."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows, join
from analysis.read.run_log import Ints
from analysis.read.text.patterns import Format
from analysis.read.text.pieces import Piece
from analysis.read.text.values import STAMP, moments, numbers
from analysis.stats.intervals import Floats

LONGEST_HEAD = 400
# What may stand before a match or in its first bytes, each with bytes that are then there; later
# ones are preferred.
HEADS = (
    ("rank", b": ", re.compile(rb"\A {0,5}(\d{1,6}): ")),
    ("rank", b"[r", re.compile(rb"\[rank ?(\d{1,6})\]")),
    ("rank", b"[R", re.compile(rb"\[R(?:ank|ANK) ?(\d{1,6})\]")),
    ("time", b":", re.compile(b"(" + STAMP.pattern + b")")),
)
HEAD_CHARS = 100
_EPOCH = re.compile(rb"(?<![A-Za-z_-])[Ee](?:poch|POCH)(?:\b[^\w\n.]{0,4})?(\d{1,7})(?!\.?\w)")


@dataclass(kw_only=True)
class Found:
    """The rows of each format, the lines of the file, and the epochs named in it by place."""

    parts: dict[str, list[Rows]] = field(default_factory=dict)
    lines: int = 0
    matched: dict[str, int] = field(default_factory=dict)
    epoch_places: list[Ints] = field(default_factory=list)
    epochs: list[Floats] = field(default_factory=list)
    openings: dict[bytes, int] = field(default_factory=dict)

    def heads(self, keys: Iterable[str]) -> frozenset[str]:
        """Return what stands before the rows of some formats: ranks, times."""
        names = {name for key in keys for part in self.parts.get(key, []) for name in part.columns}
        return frozenset(names & {"rank", "time"})

    def rows(self, key: str) -> Rows | None:
        """Return the rows of a format with the epoch that was last named before each one's end."""
        if key not in self.parts:
            return None
        rows = join(self.parts[key])
        if not sum(map(len, self.epochs)):
            return rows
        places, epochs = np.concatenate(self.epoch_places), np.concatenate(self.epochs)
        at = np.searchsorted(places, rows["end"]) - 1
        named = np.where(at >= 0, epochs[np.maximum(at, 0)], np.nan)
        own = rows["epoch"]
        return rows.replace(epoch=np.where(np.isnan(own), named, own))


def scan(
    pieces: Iterable[Piece],
    formats: Sequence[tuple[str, Format]],
    *,
    heads: frozenset[str] = frozenset(["rank", "time"]),
    openings: Sequence[bytes] = (),
) -> Found:
    """Return the rows of formats under their keys, with what `heads` name before them.

    `openings` are texts to count.
    """
    found = Found()
    for piece in pieces:
        text = b"\n" + piece.text
        found.lines += piece.text.count(b"\n") + (piece.text[-1:] != b"\n")
        for part in openings:
            found.openings[part] = found.openings.get(part, 0) + text.count(part)
        if b"poch" in text or b"POCH" in text:
            named = list(_EPOCH.finditer(text))
            found.epoch_places.append(np.array([m.start() + piece.offset for m in named], int))
            found.epochs.append(numbers([match[1] for match in named]))
        else:
            named = []
        for key, known in formats:
            rows, count = rows_of(known, piece, text, heads, named)
            if rows is not None:
                found.parts.setdefault(key, []).append(rows)
                found.matched[key] = found.matched.get(key, 0) + count
    return found


def rows_of(
    known: Format, piece: Piece, text: bytes, heads: frozenset[str], named: list[re.Match[bytes]]
) -> tuple[Rows | None, int]:
    """Return the rows of a format in a piece, None if it has none, and the lines of them.

    `text` is that of the piece after a line end, with the epochs `named` in it.
    """
    if not any(token in text for token in known.tokens):
        return None, 0
    matches = list(known.pattern.finditer(text))
    if known.unless is not None:
        matches = [match for match in matches if not known.unless.search(match["before"] or b"")]
    if not matches:
        return None, 0
    starts = np.array([match.start() for match in matches], dtype=np.int64)
    starts += [text[start] == 10 for start in starts.tolist()]
    columns = known.columns(matches)
    columns |= _heads(heads.intersection(known.heads) - columns.keys(), text, starts)
    columns["line"] = piece.lines_at(np.maximum(starts - 1, 0)).astype(np.float64)
    columns["place"] = (starts - 1 + piece.offset).astype(np.float64)
    columns["end"] = np.array([match.end() + piece.offset for match in matches], dtype=np.float64)
    rows = Rows(columns)
    if "step" in columns:
        # NaN is kept: a row of a record may stand below its step.
        rows = rows.take(~((columns["step"] < 0) | (columns["step"] >= LARGEST_STEP)))
    if known.is_redrawn:
        # The same drawing under another epoch is another bar.
        places = np.array([match.start() + piece.offset for match in named])
        rows = last_drawings(rows, np.searchsorted(places, rows["end"]))
    return (rows if len(rows) else None), len(matches)


def last_drawings(rows: Rows, of: Ints | None = None) -> Rows:
    """Return the last drawing of each step of a bar, whose loss is that step's.

    `of` [n] tells apart bars that look the same.
    """
    differs = (np.diff(rows["step"]) != 0) | (np.diff(rows["group"]) != 0)
    differs |= np.diff(rows["epoch"]) > 0
    if len(rows) > 2 and (rows["step"] == rows["group"]).all():
        # Only last drawings: with a line between them, each is another bar's.
        differs |= np.diff(rows["line"]) > 1
    if of is not None and len(np.unique(rows["step"])) == 1:
        differs |= np.diff(of) != 0
    if "bar_s" in rows:
        differs |= np.diff(rows["bar_s"]) < 0
    return rows.take(np.append(differs, True))


def _heads(names: frozenset[str], text: bytes, starts: Ints) -> dict[str, Floats]:
    """Return the columns of what stands before rows in their lines, or in their first bytes."""
    tried = [head for head in HEADS if head[0] in names and head[1] in text]
    if not tried:
        return {}
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    begins = (ends + 1)[np.searchsorted(ends, starts) - 1]
    begins = np.maximum(begins, starts - LONGEST_HEAD)
    upto = starts + HEAD_CHARS
    heads = [text[a:b] for a, b in zip(begins.tolist(), upto.tolist(), strict=True)]
    heads = [head.partition(b"\n")[0] for head in heads]
    joined = b"\n".join(heads)
    found: dict[str, Floats] = {}
    for name, token, pattern in tried:
        if token in joined:
            matches = [pattern.search(head) for head in heads]
            rows = [row for row, match in enumerate(matches) if match]
            texts = [match[1] for match in matches if match]
            if rows:
                column = found.setdefault(name, np.full(len(heads), np.nan))
                column[rows] = (moments if name == "time" else numbers)(texts)
    return found
