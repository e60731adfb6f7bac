"""Parse a batch script into directives, numbered commands, functions and traps.

The parser reads lines as people write them; it is not a shell. It removes comments, the contents
of here-documents and the backslashes that continue a line.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.files import read_text

_SHORT = {
    "a": "array", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "e": "error",
    "G": "gpus", "J": "job-name", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition",
    "t": "time", "A": "account", "q": "qos", "d": "dependency", "w": "nodelist", "x": "exclude",
    "W": "wait",
}  # fmt: skip
_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_FUNCTION = re.compile(r"(?:function\s+)?([A-Za-z_][\w-]*)\s*(?:\(\s*\))?\s*\{(.*)")
_TRAP = re.compile(r"\btrap\s+(?:--\s+)?('[^']*'|\"[^\"]*\"|\S+)\s+([A-Z0-9 ]+)")


@dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """One line of commands without its comment; `number` counts from 1."""

    number: int
    text: str

    def has(self, pattern: str) -> bool:
        """Return whether the regular expression matches anywhere in the line."""
        return re.search(pattern, self.text) is not None


@dataclass(frozen=True, kw_only=True)
class Directive:
    """The value of a flag in an `#SBATCH` line, empty if it takes none."""

    number: int
    value: str


@dataclass(frozen=True, kw_only=True)
class Trap:
    """A trap for one signal and the lines of its handler (its own line if that is inline)."""

    number: int
    signal: str
    handler: tuple[ScriptLine, ...]


@dataclass(frozen=True, kw_only=True)
class Script:
    """A parsed script; `late` lists the `#SBATCH` lines that Slurm ignores."""

    path: Path
    shebang: str
    directives: dict[str, Directive]
    late: tuple[int, ...]
    lines: tuple[ScriptLine, ...]
    functions: dict[str, tuple[ScriptLine, ...]]

    @property
    def main(self) -> list[ScriptLine]:
        """The lines outside functions."""
        inside = {line.number for body in self.functions.values() for line in body}
        return [line for line in self.lines if line.number not in inside]

    def find(self, pattern: str) -> list[ScriptLine]:
        """Return the lines that match a regular expression."""
        return [line for line in self.lines if line.has(pattern)]

    def directive(self, *names: str) -> Directive | None:
        """Return the first directive with one of these long names."""
        return next((self.directives[name] for name in names if name in self.directives), None)

    def count(self, name: str) -> int | None:
        """Return the number in a directive, the upper bound of a range."""
        found = self.directive(name)
        digits = re.findall(r"\d+", found.value) if found else []
        return int(digits[-1]) if digits else None

    def traps(self, *signals: str) -> list[Trap]:
        """Return the traps for these signals; ignored signals have an empty handler."""
        return [trap for trap in self._all_traps() if trap.signal in signals]

    def _all_traps(self) -> Iterator[Trap]:
        for line in self.lines:
            for action, names in _TRAP.findall(line.text):
                command = action.strip("'\"").strip()
                body = self.functions.get(command.split()[0], ()) if command else ()
                own = (line,) if command and not body else ()
                for name in names.split():
                    yield Trap(
                        number=line.number, signal=name.removeprefix("SIG"), handler=(*body, *own)
                    )


def read_script(path: Path) -> Script:
    """Parse the script at `path`; raise `ConfigError` if it cannot be read."""
    try:
        text = read_text(path, errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_script(text, path=path)


def parse_script(text: str, *, path: Path) -> Script:
    """Parse the text of a script; `path` is used in messages."""
    physical = without_documents(text.splitlines())
    lines = tuple(_commands(physical))
    first = lines[0].number if lines else len(physical) + 1
    directives: dict[str, Directive] = {}
    late = []
    for number, line in enumerate(physical, start=1):
        if not line.startswith("#SBATCH"):
            continue
        if number > first:
            late.append(number)
            continue
        for name, value in sbatch_flags(line.removeprefix("#SBATCH")):
            directives[name] = Directive(number=number, value=value)
    return Script(
        path=path,
        shebang=physical[0] if physical and physical[0].startswith("#!") else "",
        directives=directives,
        late=tuple(late),
        lines=lines,
        functions=_functions(lines),
    )


def without_documents(physical: list[str]) -> list[str]:
    """Return the lines, with here-documents emptied."""
    kept, end = [], None
    for line in physical:
        kept.append("" if end else line)
        if end:
            end = None if line.strip() == end else end
        elif "<<<" not in line:
            begun = _HERE_DOCUMENT.search(without_comment(line))
            end = begun[2] if begun else None
    return kept


def _commands(physical: list[str]) -> Iterator[ScriptLine]:
    """Join the lines of a command: lines that end in a backslash, and lines of a quoted text."""
    begin = 0
    while begin < len(physical):
        end, (text, quote) = begin + 1, _scan(physical[begin])
        text = text.strip()
        while (quote or text.endswith("\\")) and end < len(physical):
            more, quote = _scan(physical[end], quote)
            is_continued = text.endswith("\\")
            text = (
                f"{text[:-1].rstrip()} {more.strip()}"
                if is_continued
                else f"{text}; {more.strip()}"
            )
            end += 1
        if quote:
            # A quote that nothing closes was no quote.
            end, text = begin + 1, _scan(physical[begin])[0].strip()
        if text := text.removesuffix("\\").strip():
            yield ScriptLine(number=begin + 1, text=text)
        begin = end


def without_comment(line: str) -> str:
    """Return the line up to a # that begins a word outside quotes."""
    return _scan(line)[0]


def _scan(line: str, quote: str = "") -> tuple[str, str]:
    """Return a line without its comment, and the quote that is open after it, given that before."""
    for i, character in enumerate(line):
        is_escaped = i > 0 and line[i - 1] == "\\" and quote != "'"
        if quote:
            quote = "" if character == quote and not is_escaped else quote
        elif character in "'\"" and not is_escaped:
            quote = character
        elif character == "#" and (i == 0 or line[i - 1] in " \t;"):
            return line[:i], ""
    return line, quote


def sbatch_flags(text: str) -> Iterator[tuple[str, str]]:
    """Yield the long name and the value of each flag of sbatch in a text, "" without a value."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            equals = value
        else:
            continue
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield name, value


def _functions(lines: tuple[ScriptLine, ...]) -> dict[str, tuple[ScriptLine, ...]]:
    """Return function bodies; the closing brace is on its own line or on the line of the name."""
    found: dict[str, tuple[ScriptLine, ...]] = {}
    name, body = "", []
    for line in lines:
        opens = _FUNCTION.fullmatch(line.text)
        if not name and opens and (line.has(r"\(\s*\)") or line.text.startswith("function")):
            name, rest = opens[1], opens[2].strip()
            body = [ScriptLine(number=line.number, text=rest.rstrip("} ;"))] if rest else []
            if rest.endswith("}"):
                found[name], name = tuple(body), ""
        elif name and line.text.startswith("}"):
            found[name], name = tuple(body), ""
        elif name:
            body.append(line)
    return found
