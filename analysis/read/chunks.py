"""Streams a text log in bounded pieces that end at line ends, free of terminal codes."""

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from analysis.read.log import Ints

PIECE = 1 << 22
LONGEST_LINE = 1 << 23
LONGEST_HEAD = 400
COMMON_CODES = 12
# CSI sequences, OSC strings (titles, links), and any other two-byte escape.
_TERMINAL = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-_])")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Whole lines of a file: `line` is the number of the first, `offset` counts cleaned bytes."""

    data: bytes
    line: int
    offset: int
    newlines: Ints

    def line_numbers(self, positions: Ints) -> Ints:
        """The line numbers of byte positions in `data`."""
        return self.line + np.searchsorted(self.newlines, positions)

    def head(self, position: int) -> bytes:
        """What stands before a position on its line, or on its part of a line redrawn with CR."""
        window = self.data[max(0, position - LONGEST_HEAD) : position]
        return window[max(window.rfind(b"\n"), window.rfind(b"\r")) + 1 :]


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
            piece = rest + block
            end = len(piece) if not block else _line_end(piece)
            data, rest = piece[:end], piece[end:]
            if data:
                clean = _without_codes(data)
                newlines = np.flatnonzero(np.frombuffer(clean, dtype=np.uint8) == 10)
                yield Chunk(data=clean, line=line, offset=offset, newlines=newlines)
                line += len(newlines)
                offset += len(clean)
            if not block:
                return


def _without_codes(data: bytes) -> bytes:
    """The data without terminal codes: a few colours are most of them, and are replaced first."""
    for _ in range(COMMON_CODES):
        code = _TERMINAL.search(data)
        if code is None:
            return data
        data = data.replace(code[0], b"")
    return _TERMINAL.sub(b"", data)


def _line_end(piece: bytes) -> int:
    """Where to cut a piece: after its last line, or redraw; 0 to wait for more of a long line."""
    end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
    return end or (len(piece) if len(piece) > LONGEST_LINE else 0)
