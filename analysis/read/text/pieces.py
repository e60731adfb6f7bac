"""Read a text log in bounded pieces that end at line ends."""

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from analysis.read.progress import ReadingProgress
from analysis.read.run_log import Ints
from configs.errors import Unreadable
from configs.files import open_regular

# Small: the garbage collector walks the matches of a piece again and again. Of 2 MiB DiT's logs
# are read at 16 MB/s, of 32 KiB at 36 MB/s.
PIECE = 1 << 15
LONGEST_LINE = 1 << 20
MOST_BYTES = 1 << 33
COMMON_CODES = 12
# CSI sequences, OSC strings (titles, links), and any other two-byte escape.
_TERMINAL = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-_])")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Whole lines of a file, without terminal codes, every CR and backspace replaced by LF.

    `line` is the number of the first line, `offset` the place in the file, and `newlines` the
    places of the file's own line ends in `text`.
    """

    text: bytes
    line: int
    offset: int
    newlines: Ints

    def lines_at(self, places: Ints) -> Ints:
        """Return the number in the file of the line that each place [n] stands on."""
        return self.line + np.searchsorted(self.newlines, places)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for its bytes, unpacked if it is gzip."""
    with open_regular(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
    return io.BufferedReader(_Unpacked(path), PIECE) if packed else open_regular(path)


class _Unpacked(gzip.GzipFile):
    """The bytes of a gzip file, bounded, as a small file may unpack to any length."""

    def __init__(self, path: Path) -> None:
        file = open_regular(path)
        self.myfileobj = file  # type: ignore[assignment]  # which is closed with this one
        super().__init__(path, fileobj=file)
        self._file = path

    def readinto(self, buffer: Any) -> int:
        count: int = super().readinto(buffer)
        if self.tell() > MOST_BYTES:
            raise Unreadable(f"{self._file}: more than {MOST_BYTES >> 30} GiB unpacked; cut it")
        return count


def pieces(path: Path, *, again_from: int | None = None) -> Iterator[Piece]:
    """Yield the file piece by piece; a line longer than `LONGEST_LINE` is cut there.

    If a file is read again, only the pieces that reach beyond a place are yielded, and no progress
    is shown.
    """
    line, offset, rest = 1, 0, b""
    progress = ReadingProgress(path)
    with open_bytes(path) as file:
        raw = getattr(getattr(file, "raw", file), "fileobj", file)
        while True:
            block = file.read(PIECE)
            if again_from is None:
                progress.at(raw.tell())
            data = rest + block if rest else block
            end = len(data) if not block else _last_line_end(data)
            data, rest = data[:end], data[end:]
            if again_from is not None and offset + end <= again_from:
                line += data.count(b"\n")
            elif data:
                clean = without_codes(data)
                newlines = np.flatnonzero(np.frombuffer(clean, dtype=np.uint8) == 10)
                text = clean.replace(b"\r", b"\n").replace(b"\b", b"\n")
                yield Piece(text=text, line=line, offset=offset, newlines=newlines)
                line += len(newlines)
            offset += end
            if not block:
                return


def without_codes(data: bytes) -> bytes:
    """Return the data without terminal codes. The few common ones are replaced first: faster."""
    for _ in range(COMMON_CODES):
        code = _TERMINAL.search(data) if b"\x1b" in data else None
        if code is None:
            return data
        data = data.replace(code[0], b"")
    return _TERMINAL.sub(b"", data)


def _last_line_end(data: bytes) -> int:
    """Return the place after the last line or redraw, 0 to read more of a long line first."""
    newline = data.rfind(b"\n")
    end = max(newline, data.rfind(b"\r", newline + 1)) + 1
    return end or (len(data) if len(data) > LONGEST_LINE else 0)
