"""A script judged by every rule, and what is printed of it."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from launch.lint.script import Script

Where = Callable[[Script], Iterable[int]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One mistake: where it stands, what comes of it, and what to write instead."""

    name: str
    level: Literal["warning", "remark"]
    explanation: str
    mend: str
    where: Where


@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """A rule that a line breaks."""

    number: int
    rule: Rule


def rule(
    explanation: str, *, mend: str, level: Literal["warning", "remark"] = "warning"
) -> Callable[[Where], Rule]:
    """Make a rule of the function that finds its lines; it is called as the function is."""

    def make(where: Where) -> Rule:
        name = where.__name__.strip("_").replace("_", "-")
        return Rule(name=name, level=level, explanation=explanation, mend=mend, where=where)

    return make


def findings(script: Script) -> list[LintFinding]:
    """What is wrong with a script, by line."""
    return sorted(_found(script), key=lambda one: (one.number, one.rule.name))


def _found(script: Script) -> Iterator[LintFinding]:
    # Imported late: they are made by this module's own decorator.
    from launch.lint import directives, exit_codes, rendezvous, signals

    for part in (directives, exit_codes, rendezvous, signals):
        for one in part.RULES:
            yield from (LintFinding(number=number, rule=one) for number in one.where(script))


def examine(script: Script) -> int:
    """Print the findings; 0 where there is none but remarks, 1 otherwise."""
    found = findings(script)
    for one in found:
        path = re.sub(r"[^ -~]", "?", str(script.path))
        print(f"{path}:{one.number}: {one.rule.level}: {one.rule.explanation} [{one.rule.name}]")
        print(f"    mend: {one.rule.mend}")
    warnings = sum(one.rule.level == "warning" for one in found)
    remarks = len(found) - warnings
    print(f"{warnings} warnings, {remarks} remarks", file=sys.stderr)
    return int(warnings > 0)
