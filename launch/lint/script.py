"""A batch script as rules see it: directives, commands with their line numbers, functions, traps.

Read by lines, as people write them; this is no shell. Comments, what stands in here-documents and
the backslashes that continue a line are gone.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError

_SHORT = {
    "a": "array", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "e": "error",
    "G": "gpus", "J": "job-name", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition",
    "t": "time", "A": "account", "q": "qos", "d": "dependency", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_FUNCTION = re.compile(r"(?:function\s+)?([A-Za-z_][\w-]*)\s*(?:\(\s*\))?\s*\{(.*)")
_TRAP = re.compile(r"\btrap\s+(?:--\s+)?('[^']*'|\"[^\"]*\"|\S+)\s+([A-Z0-9 ]+)")


@dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """A command, or several on one line, without its comment; `number` counts from 1."""

    number: int
    text: str

    def has(self, pattern: str) -> bool:
        """Whether a regular expression is found in it."""
        return re.search(pattern, self.text) is not None


@dataclass(frozen=True, kw_only=True)
class Directive:
    """A flag in an `#SBATCH` line, by its long name; an empty value where it takes none."""

    number: int
    value: str


@dataclass(frozen=True, kw_only=True)
class Trap:
    """What is done at a signal: the lines of its handler, its own line where it names none."""

    number: int
    signal: str
    does: tuple[ScriptLine, ...]


@dataclass(frozen=True, kw_only=True)
class Script:
    """The whole of a script; `late` are `#SBATCH` lines that Slurm does not read."""

    path: Path
    shebang: str
    directives: dict[str, Directive]
    late: tuple[int, ...]
    lines: tuple[ScriptLine, ...]
    functions: dict[str, tuple[ScriptLine, ...]]

    @property
    def main(self) -> list[ScriptLine]:
        """The lines outside of functions."""
        inside = {line.number for body in self.functions.values() for line in body}
        return [line for line in self.lines if line.number not in inside]

    def find(self, pattern: str) -> list[ScriptLine]:
        """The lines that a regular expression is found in."""
        return [line for line in self.lines if line.has(pattern)]

    def asks(self, *names: str) -> Directive | None:
        """The first directive of these names."""
        return next((self.directives[name] for name in names if name in self.directives), None)

    def count(self, name: str) -> int | None:
        """The number that a directive gives; the larger one of a range."""
        found = self.asks(name)
        digits = re.findall(r"\d+", found.value) if found else []
        return int(digits[-1]) if digits else None

    def traps(self, *signals: str) -> list[Trap]:
        """What is done at these signals; nothing where they are ignored."""
        return [trap for trap in self._all_traps() if trap.signal in signals]

    def _all_traps(self) -> Iterator[Trap]:
        for line in self.lines:
            for action, names in _TRAP.findall(line.text):
                said = action.strip("'\"")
                body = self.functions.get(said.split()[0], ()) if said.strip() else ()
                own = (line,) if said.strip() and not body else ()
                for name in names.split():
                    yield Trap(
                        number=line.number, signal=name.removeprefix("SIG"), does=(*body, *own)
                    )


def read_script(path: Path) -> Script:
    """The script at `path`; `ConfigError` where there is none to read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_script(text, path=path)


def parse_script(text: str, *, path: Path) -> Script:
    """The script of this text, as if it stood in `path`."""
    physical = _without_documents(text.splitlines())
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
        for name, value in _flags(line.removeprefix("#SBATCH")):
            directives[name] = Directive(number=number, value=value)
    return Script(
        path=path,
        shebang=physical[0] if physical and physical[0].startswith("#!") else "",
        directives=directives,
        late=tuple(late),
        lines=lines,
        functions=_functions(lines),
    )


def _without_documents(physical: list[str]) -> list[str]:
    """The lines, those of here-documents emptied."""
    kept, end = [], None
    for line in physical:
        kept.append("" if end else line)
        if end:
            end = None if line.strip() == end else end
        elif "<<<" not in line:
            begun = _HERE_DOCUMENT.search(_without_comment(line))
            end = begun[2] if begun else None
    return kept


def _commands(physical: list[str]) -> Iterator[ScriptLine]:
    numbered = iter(enumerate(physical, start=1))
    for number, line in numbered:
        text = _without_comment(line).strip()
        while text.endswith("\\"):
            text = text[:-1].rstrip() + " " + _without_comment(next(numbered, (0, ""))[1]).strip()
        if text.strip():
            yield ScriptLine(number=number, text=text.strip())


def _without_comment(line: str) -> str:
    """The line up to a # that begins a word outside quotes."""
    quote = ""
    for i, character in enumerate(line):
        if quote:
            quote = "" if character == quote and line[i - 1] != "\\" else quote
        elif character in "'\"" and (i == 0 or line[i - 1] != "\\"):
            quote = character
        elif character == "#" and (i == 0 or line[i - 1] in " \t;"):
            return line[:i]
    return line


def _flags(text: str) -> Iterator[tuple[str, str]]:
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
    """The bodies of functions, whose closing brace stands alone, or on the line of their name."""
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
