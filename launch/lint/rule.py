"""A lint rule and the decorator that makes one from the function that finds its lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from launch.lint.script import Script

FindLines = Callable[[Script], Iterable[int]]
Level = Literal["warning", "remark"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mistake: how to find its lines, why it is a mistake, and what to write instead."""

    name: str
    level: Level
    explanation: str
    fix: str
    find: FindLines


def rule(explanation: str, *, fix: str, level: Level = "warning") -> Callable[[FindLines], Rule]:
    """Turn a function that yields line numbers into a `Rule` named after the function."""

    def make(find: FindLines) -> Rule:
        name = find.__name__.replace("_", "-")
        return Rule(name=name, level=level, explanation=explanation, fix=fix, find=find)

    return make
