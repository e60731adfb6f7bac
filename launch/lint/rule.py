"""A lint rule and the decorator that makes one from the function that finds its lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from launch.lint.script import Script
from launch.slurm.version import VersionRange

FindLines = Callable[[Script], Iterable[int]]
Level = Literal["warning", "remark"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mistake: how to find its lines, why it is a mistake, what to write instead, and where.

    `versions` are those of Slurm on which it is a mistake.
    """

    name: str
    level: Level
    explanation: str
    fix: str
    find: FindLines
    versions: VersionRange


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
            versions=VersionRange(since=since, until=until),
        )

    return make
