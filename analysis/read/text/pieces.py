"""Read a text log in bounded pieces that end at line ends."""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from analysis.read.run_log import Ints
from analysis.read.vocabulary import ENGLISH
from configs.files import open_regular

PIECE = 1 << 18
LONGEST_LINE = 1 << 20
LARGEST_UTF16 = 1 << 28
_ENGLISH = {
    word.encode(): english.encode().ljust(len(word.encode())) for word, english in ENGLISH.items()
}
# ASCII, and the bytes of the signs of bars, units and emojis.
_OF_NO_WORD = bytes(range(0xC3)) + b"\xe2\xf0"
# The third epoch, as Chinese counts.
_EPOCH = re.compile("第( *\\d+ *)轮".encode())
# CSI sequences, OSC strings (titles, links), and any other two-byte escape.
_TERMINAL = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-_])")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Whole lines of a file, without terminal codes and zeros; CR and backspace are line ends.

    The text is Latin-1, in which each byte is a character. `line` is the number of the first line,
    `offset` the place in the file, and `newlines` the places of the file's own line ends in `text`.
    """

    text: str
    line: int
    offset: int
    newlines: Ints

    def lines_at(self, places: Ints) -> Ints:
        """Return the number in the file of the line that each place [n] stands on."""
        return self.line + np.searchsorted(self.newlines, places)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for its bytes, in UTF-8 if it is UTF-16."""
    with open_regular(path) as file:
        start = file.read(2)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            data = start + file.read(LARGEST_UTF16)
            return io.BytesIO(data.decode("utf-16", "replace").encode("utf-8", "replace"))
    return open_regular(path)


def pieces(path: Path) -> Iterator[Piece]:
    """Yield the file piece by piece; a line longer than `LONGEST_LINE` is cut there."""
    line, offset, rest = 1, 0, b""
    with open_bytes(path) as file:
        while True:
            block = file.read(PIECE)
            data = rest + block if rest else block
            end = len(data) if not block else _last_line_end(data)
            data, rest = data[:end], data[end:]
            if data:
                piece = _piece(data, line, offset)
                yield piece
                line += len(piece.newlines)
            offset += end
            if not block:
                return


def in_english(data: bytes) -> bytes:
    """Return a text of the same length in which the words of some other languages are English."""
    if data.isascii() or not data.translate(None, _OF_NO_WORD):
        return data
    data = _EPOCH.sub(rb"epoch \1", data)
    for word, english in _ENGLISH.items():
        data = data.replace(word, english)
    return data


def _piece(data: bytes, line: int, offset: int) -> Piece:
    clean = _TERMINAL.sub(b"", data) if b"\x1b" in data else data
    clean = in_english(clean.replace(b"\0", b""))
    newlines = np.flatnonzero(np.frombuffer(clean, dtype=np.uint8) == 10)
    text = clean.replace(b"\r", b"\n").replace(b"\b", b"\n").decode("latin-1")
    return Piece(text=text, line=line, offset=offset, newlines=newlines)


def _last_line_end(data: bytes) -> int:
    """Return the place after the last line or redraw, 0 to read more of a long line first."""
    newline = data.rfind(b"\n")
    end = max(newline, data.rfind(b"\r", newline + 1)) + 1
    return end or (len(data) if len(data) > LONGEST_LINE else 0)
