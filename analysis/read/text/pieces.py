"""Read a text log in bounded pieces that end at line ends."""

import codecs
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
# What is looked at to find out how a file is to be read: its beginning, and parts of the rest.
SAMPLE, HEAD, PARTS = 1 << 18, 1 << 17, 8
LARGEST_UTF16 = 1 << 28
WIDE = 1 << 12
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
        start = file.read(2)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            data = start + file.read(LARGEST_UTF16)
            return io.BytesIO(data.decode("utf-16", "replace").encode("utf-8", "replace"))
        if _is_wide(start + file.read(WIDE - 2)):
            file.seek(0)
            return io.BytesIO(file.read(LARGEST_UTF16).replace(b"\0", b""))
    packed = start == b"\x1f\x8b"
    return io.BufferedReader(_Unpacked(path), PIECE) if packed else open_regular(path)


def _is_wide(start: bytes) -> bool:
    """Whether a text begins as UTF-16 without a mark, perhaps after lines of one byte each."""
    letters = start.replace(b"\0", b"")
    share = 1 - len(letters) / max(len(start), 1)
    plain = letters.translate(None, bytes(range(32, 127)) + b"\t\r\n\x1b")
    return 0.3 < share < 0.52 and len(plain) <= len(letters) // 100 and b"\0\0" not in start


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
                piece = _piece(data, line, offset)
                yield piece
                line += len(piece.newlines)
            offset += end
            if not block:
                return


def sample(path: Path) -> list[Piece]:
    """Return a small file whole; the beginning, the end and parts between of a large one."""
    with open_bytes(path) as file:
        data = file.read(SAMPLE)
        if len(data) < SAMPLE:
            return [_piece(data, 1, 0)]
        found = [_piece(data[: data.rfind(b"\n", 0, HEAD) + 1 or HEAD], 1, 0)]
        if isinstance(file, io.BufferedReader) and isinstance(file.raw, _Unpacked):
            return [*found, _piece(data[HEAD:], 1, HEAD)]
        size = file.seek(0, io.SEEK_END)
        length = (SAMPLE - HEAD) // PARTS
        for number in range(PARTS):
            at = HEAD + (size - length - HEAD) * number // (PARTS - 1)
            file.seek(at)
            part = file.read(length)
            cut = re.search(rb"[\r\n]", part)
            begin = cut.end() if cut else 0
            end = _last_line_end(part) if number < PARTS - 1 else 0
            found.append(_piece(part[begin : end or None], 1, at + begin))
        return found


def _piece(data: bytes, line: int, offset: int) -> Piece:
    clean = without_codes(data)
    newlines = np.flatnonzero(np.frombuffer(clean, dtype=np.uint8) == 10)
    text = clean.replace(b"\r", b"\n").replace(b"\b", b"\n")
    return Piece(text=text, line=line, offset=offset, newlines=newlines)


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
