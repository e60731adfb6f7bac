"""The lines of log files, quoted by file and line number, and the last exception in them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.terminal import printable
from runs.folder import ROOT

_PREFIX = re.compile(r"^\[[^\]]*\]:\s?")
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"(?:(?:\w+\.)+\w+|[A-Z]\w*)(?::(?:\s|$)|$)")
# torchrun reports the end of its ranks by exceptions of its own.
_BY_TORCHRUN = re.compile(r"\S*(?:ChildFailedError|SignalException|RendezvousConnectionError)\b")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")
# Jobs of the launcher run from a snapshot.
_SNAPSHOT = re.compile(r"^.*/\.code/[^/]+/")


@dataclass(frozen=True, kw_only=True)
class LogLines:
    """The lines of a file, or a part of it; `first` is the number of the first line."""

    path: Path
    first: int
    lines: tuple[str, ...]

    def find(self, pattern: str) -> Iterator[tuple[int, str]]:
        """Yield the lines that match a regular expression, with their numbers."""
        numbered = enumerate(self.lines, start=self.first)
        return ((number, line) for number, line in numbered if re.search(pattern, line))

    def last(self) -> list[str]:
        """Return the last line that is not blank, quoted; nothing if there is none."""
        return [quote(self.path, *found) for found in [*self.find(r"\S")][-1:]]


def quote(path: Path, number: int, text: str) -> str:
    """Return a line of a file with its place; `number` counts from 1."""
    shown = printable(text.strip().expandtabs())
    return f"{path}:{number}: {shown if len(shown) <= 200 else f'{shown[:197]}...'}"


def first_line(text: str) -> str:
    """Return the first line of a message, at most 300 characters of it."""
    return text.strip().splitlines()[0][:300] if text.strip() else "no message"


def last_exception(lines: Iterable[str]) -> str:
    """Return `train/loop.py:1: SyntaxError: invalid syntax` of the last traceback, or ""."""
    found = ""
    frames: list[tuple[str, str]] = []
    for line in lines:
        text = _PREFIX.sub("", line).rstrip()
        if frame := _FRAME.match(text):
            frames.append((frame[1], frame[2]))
        elif frames and _RAISED.match(text):
            if not _BY_TORCHRUN.match(text):
                found = f"{_place(frames)}: {text[:200]}"
            frames = []
    return found


def _place(frames: list[tuple[str, str]]) -> str:
    """Return the innermost line outside of libraries, in a file relative to the code's tree."""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    file, number = (own or frames)[-1]
    path = Path(_SNAPSHOT.sub("", file))
    for root in (ROOT, Path.cwd()):
        path = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{path}:{number}"
