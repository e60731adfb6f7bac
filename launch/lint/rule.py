"""The rules of the linter: their table rules.toml, and how a pattern finds their lines."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from configs.files import read_text
from launch.lint.commands import AGENT
from launch.lint.script import Script

FindLines = Callable[[Script], Iterable[int]]
Level = Literal["warning", "remark"]


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """Versions of Slurm from `since` on and before `until`; None is no bound."""

    since: str | None = None
    until: str | None = None

    def holds(self, version: str | None) -> bool:
        """Return whether a version such as `24.11.5` is in the range; True if it is unknown."""
        if version is None:
            return True
        release = _numbers(version)
        begun = self.since is None or _numbers(self.since) <= release
        return begun and (self.until is None or release < _numbers(self.until))

    def __str__(self) -> str:
        if self.since and self.until:
            return f"Slurm {self.since} to before {self.until}"
        if self.until:
            return f"Slurm before {self.until}"
        return f"Slurm {self.since} or later" if self.since else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mistake: how to find its lines, why it is a mistake, what to write instead, and where.

    `versions` are the versions of Slurm on which it is a mistake.
    """

    name: str
    level: Level = "warning"
    explanation: str
    fix: str
    find: FindLines
    versions: VersionRange


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A mistake that directives and lines of the script show; rules.toml explains the fields."""

    directives: tuple[str, ...] = ()
    value: str = ""
    line: str = ""
    first: bool = False
    also: str = ""
    unless: str = "(?!)"

    def __call__(self, script: Script) -> Iterator[int]:
        """Yield the numbers of the lines."""
        given = [script.directive(*names.split("|")) for names in self.directives]
        if script.find(self.unless) or (self.also and not script.find(self.also)):
            return
        for directive in given:
            if directive is None:
                return
        if not self.line:
            last = given[-1]
            assert last is not None
            yield from [last.number] if re.search(self.value, last.value) else []
            return
        found = script.find(self.line.replace("{AGENT}", AGENT))
        yield from (line.number for line in found[: 1 if self.first else None])


def read_table() -> dict[str, dict[str, dict[str, Any]]]:
    """Return rules.toml; it needs no package, so that any Python checks a script."""
    return tomllib.loads(read_text(Path(__file__).with_name("rules.toml")))


def make_rules(functions: Mapping[str, FindLines]) -> list[Rule]:
    """Return the rules; `functions` find the lines of those without a pattern, by name."""
    return [_rule(name, dict(entry), functions) for name, entry in read_table()["rules"].items()]


def _rule(name: str, entry: dict[str, Any], functions: Mapping[str, FindLines]) -> Rule:
    versions = VersionRange(since=entry.pop("since", None), until=entry.pop("until", None))
    shown = {key: entry.pop(key) for key in ("level", "explanation", "fix") if key in entry}
    find = Pattern(**entry) if entry else functions[name]
    return Rule(name=name, find=find, versions=versions, **shown)
