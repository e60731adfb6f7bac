"""A lint rule and the decorator that makes one from the function that finds its lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from launch.lint.script import Script

FindLines = Callable[[Script], Iterable[int]]
Level = Literal["warning", "remark"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mistake: how to find its lines, why it is a mistake, and what to write instead.

    It is a mistake on versions of Slurm from `since` on and before `until`; None is no bound.
    """

    name: str
    level: Level
    explanation: str
    fix: str
    find: FindLines
    since: str | None
    until: str | None

    def concerns(self, version: str | None) -> bool:
        """Return whether the rule holds on a version such as `24.11.5`, or if that is unknown."""
        if version is None:
            return True
        release = _release(version)
        after = self.since is None or _release(self.since) <= release
        return after and (self.until is None or release < _release(self.until))

    @property
    def range(self) -> str:
        """The versions in words, such as `Slurm 22.05 to before 23.11`; empty for all."""
        if self.since and self.until:
            return f"Slurm {self.since} to before {self.until}"
        if self.until:
            return f"Slurm before {self.until}"
        return f"Slurm {self.since} or later" if self.since else ""


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def rule(
    explanation: str,
    *,
    fix: str,
    level: Level = "warning",
    since: str | None = None,
    until: str | None = None,
) -> Callable[[FindLines], Rule]:
    """Turn a function that yields line numbers into a `Rule` named after the function."""

    def make(find: FindLines) -> Rule:
        return Rule(
            name=find.__name__.replace("_", "-"),
            level=level,
            explanation=explanation,
            fix=fix,
            find=find,
            since=since,
            until=until,
        )

    return make
