"""What an attempt and its job have written, as lines that can be quoted by file and number."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.terminal import printable

# Of a longer file the end is read.
MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A line of a file; `number` counts from 1."""

    path: Path
    number: int
    text: str

    def __str__(self) -> str:
        shown = printable(self.text.strip().expandtabs())
        return f"{self.path}:{self.number}: {shown if len(shown) <= 200 else f'{shown[:197]}...'}"


@dataclass(frozen=True, kw_only=True)
class LogLines:
    """The lines of a file, or a part of it that begins with line `first`."""

    path: Path
    first: int
    lines: tuple[str, ...]

    def find(self, pattern: str) -> Iterator[Quote]:
        """The lines in which a regular expression is found."""
        for number, line in enumerate(self.lines, start=self.first):
            if re.search(pattern, line):
                yield Quote(path=self.path, number=number, text=line)

    def last(self) -> Iterator[Quote]:
        """The last line that says something."""
        for number, line in reversed([*enumerate(self.lines, start=self.first)]):
            if line.strip():
                yield Quote(path=self.path, number=number, text=line)
                return


def read(path: Path) -> LogLines:
    """A file's lines; none where it cannot be read."""
    first = 1
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            skipped = max(0, size - MOST_BYTES)
            file.seek(0)
            if skipped:
                first += file.read(skipped).count(b"\n")
            content = file.read()
    except OSError:
        content = b""
    lines = content.decode(errors="replace").split("\n")
    return LogLines(path=path, first=first, lines=tuple(lines))


def part_of_attempt(text: LogLines, *, run: Path, number: int) -> LogLines:
    """What a job's own output holds of one attempt: a requeued job appends to its file."""
    starts = {
        int(found[1]): i
        for i, line in enumerate(text.lines)
        if (found := re.fullmatch(rf"run {re.escape(str(run))}, attempt (\d+)", line))
    }
    if number not in starts:
        # Before the first attempt of all, or a file that says nothing of attempts.
        return text if not starts else LogLines(path=text.path, first=1, lines=())
    later = [i for other, i in starts.items() if other > number]
    begin, end = starts[number], min(later, default=len(text.lines))
    return LogLines(path=text.path, first=text.first + begin, lines=text.lines[begin:end])


def first_quotes(texts: Iterable[LogLines], pattern: str, *, most: int = 3) -> list[str]:
    """The first line of each text in which a pattern is found, of so many texts."""
    found = (next(text.find(pattern), None) for text in texts)
    return [str(quote) for quote in found if quote is not None][:most]
