"""The lines of log files, quoted by file and line number, and the last exception in them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.disk import read_end
from configs.files import open_regular
from configs.terminal import printable
from runs.folder import ROOT

# Only the end of a longer file is read.
MAX_BYTES = 8 * 2**20
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


def read(path: Path) -> LogLines:
    """Return the lines of a file; none if it cannot be read."""
    first = 1
    try:
        with open_regular(path) as file:
            skipped = max(0, file.seek(0, 2) - MAX_BYTES)
            file.seek(0)
            while left := skipped - file.tell():
                first += file.read(min(left, MAX_BYTES)).count(b"\n")
            content = file.read(2 * MAX_BYTES)
    except OSError:
        content = b""
    lines = content.decode(errors="replace").split("\n")
    return LogLines(path=path, first=first, lines=tuple(lines))


def read_tail(path: Path) -> LogLines:
    """Return the last lines of a file, 64 KiB of them, numbered as if it began with them."""
    return LogLines(path=path, first=1, lines=tuple(read_end(path).splitlines()))


def part_of_attempt(log: LogLines, *, run: Path, number: int) -> LogLines:
    """Return the part of a job's output for one attempt; a requeued job appends to its file."""
    starts = {
        int(found[1]): i
        for i, line in enumerate(log.lines)
        if (found := re.fullmatch(rf"run {re.escape(str(run))}, attempt (\d+)", line))
    }
    if number not in starts:
        # Without any attempt the output is from before the first one.
        return log if not starts else LogLines(path=log.path, first=1, lines=())
    later = [i for other, i in starts.items() if other > number]
    begin, end = starts[number], min(later, default=len(log.lines))
    return LogLines(path=log.path, first=log.first + begin, lines=log.lines[begin:end])


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
