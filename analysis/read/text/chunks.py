"""Streams a text log in bounded pieces that end at line ends."""

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from analysis.read.run_log import Ints

PIECE = 1 << 21
LONGEST_LINE = 1 << 23
COMMON_CODES = 12
# CSI sequences, OSC strings (titles, links), and any other two-byte escape.
_TERMINAL = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-_])")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Whole lines of a file: `line` is the number of the first, `offset` where they begin in it.

    `newlines` are the places of the line ends in `data`. Terminal codes are still in it.
    """

    data: bytes
    line: int
    offset: int
    newlines: Ints

    def clean(self) -> "Chunk":
        """The same lines without terminal codes; no code holds a line end."""
        if b"\x1b" not in self.data:
            return self
        data = without_codes(self.data)
        return replace(self, data=data, newlines=_newlines(data))

    def text(self, line: int) -> bytes:
        """One line, by its number in the file."""
        number = line - self.line
        start = int(self.newlines[number - 1]) + 1 if number else 0
        end = int(self.newlines[number]) if number < len(self.newlines) else len(self.data)
        return self.data[start:end]

    def after(self, position: int) -> "Chunk":
        """The part from the beginning of the line, or redraw, that a position stands on."""
        before = int(np.searchsorted(self.newlines, position))
        start = int(self.newlines[before - 1]) + 1 if before else 0
        start = max(start, self.data.rfind(b"\r", start, position) + 1)
        return Chunk(
            data=self.data[start:],
            line=self.line + before,
            offset=self.offset + start,
            newlines=self.newlines[before:] - start,
        )


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return io.BufferedReader(gzip.GzipFile(path), PIECE) if packed else path.open("rb")


def chunks(path: Path) -> Iterator[Chunk]:
    """The file piece by piece; a line longer than `LONGEST_LINE` is cut there."""
    line, offset, rest = 1, 0, b""
    with open_bytes(path) as file:
        while True:
            block = file.read(PIECE)
            piece = rest + block if rest else block
            end = len(piece) if not block else _line_end(piece)
            data, rest = piece[:end], piece[end:]
            if data:
                newlines = _newlines(data)
                yield Chunk(data=data, line=line, offset=offset, newlines=newlines)
                line += len(newlines)
                offset += len(data)
            if not block:
                return


def _newlines(data: bytes) -> Ints:
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)


def codes(data: bytes) -> list[tuple[int, int]]:
    """The (start, end) of each terminal code."""
    return [match.span() for match in _TERMINAL.finditer(data)]


def without_codes(data: bytes) -> bytes:
    """The data without terminal codes: a few colours are most of them, and are replaced first."""
    for _ in range(COMMON_CODES):
        code = _TERMINAL.search(data)
        if code is None:
            return data
        data = data.replace(code[0], b"")
    return _TERMINAL.sub(b"", data)


def _line_end(piece: bytes) -> int:
    """Where to cut a piece: after its last line, or redraw; 0 to wait for more of a long line."""
    newline = piece.rfind(b"\n")
    end = max(newline, piece.rfind(b"\r", newline + 1)) + 1
    return end or (len(piece) if len(piece) > LONGEST_LINE else 0)
