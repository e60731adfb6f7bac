"""Rows found in one piece of a log, before ranks and attempts are told apart."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.noise import Floats
from analysis.read.chunks import Chunk
from analysis.read.log import Ints
from analysis.read.stamps import stamps_before

_RANK = re.compile(rb"(?i)\[rank ?(\d{1,6})\]")
_TASK = re.compile(rb"^(\d{1,6}): ")
LARGEST_STEP = 1 << 53


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`n` rows: step, line and place in the file, rank (-1 unknown), group, and named values.

    `group` tells apart what one format may tell side by side (bars of different length).
    """

    step: Ints
    line: Ints
    place: Ints
    rank: Ints
    group: Ints
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of text log: a token that its pieces contain, and how the rows are read."""

    name: str
    token: bytes
    read: Callable[[Chunk], Batch | None]

    def rows(self, chunk: Chunk) -> Batch | None:
        """The rows in a piece, or None."""
        return self.read(chunk) if self.token in chunk.data else None


def from_matches(
    chunk: Chunk, matches: Sequence[re.Match[bytes]], columns: dict[str, Floats]
) -> Batch | None:
    """A batch of one row per match, by the columns read from them; `step` is one of these."""
    step = columns.pop("step")
    kept = (step >= 0) & (step < LARGEST_STEP)
    if not kept.any():
        return None
    starts = np.array([match.start() for match in matches], dtype=np.int64)[kept]
    group = columns.pop("group", np.zeros(len(step)))[kept].astype(np.int64)
    values = {name: column[kept] for name, column in columns.items()}
    if "time" not in values:
        values["time"] = stamps_before(chunk, starts)
    return Batch(
        step=step[kept].astype(np.int64),
        line=chunk.line_numbers(starts),
        place=chunk.offset + starts,
        rank=_ranks(chunk, starts),
        group=group,
        values={name: column for name, column in values.items() if not np.isnan(column).all()},
    )


def numbers(texts: Iterable[bytes | None]) -> Floats:
    """Numbers as printed; `1,710` and `23.5%` too; what is none, or not finite, is NaN."""
    listed = [text or b"nan" for text in texts]
    try:
        found = np.array(listed, dtype="S").astype(np.float64)
    except ValueError:
        found = np.array([_number(text) for text in listed], dtype=np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def _number(text: bytes) -> float:
    try:
        return float(text.replace(b",", b"").rstrip(b"%."))
    except ValueError:
        return np.nan


def _ranks(chunk: Chunk, starts: Ints) -> Ints:
    """The rank that a line's prefix names (`[rank3]:`, `[RANK 3]`, srun's `3: `), else -1."""
    pattern = _RANK if b"[rank" in chunk.data or b"[RANK " in chunk.data else _TASK
    if pattern is _TASK and not _TASK.search(chunk.head(int(starts[0]))):
        return np.full(len(starts), -1)
    found = (pattern.search(chunk.head(start)) for start in starts.tolist())
    return np.array([int(match[1]) if match else -1 for match in found], dtype=np.int64)
