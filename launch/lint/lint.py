"""Check a batch script against every rule and print the findings."""

import re
import sys
from dataclasses import dataclass

from configs.terminal import plural
from launch.lint import directives, exit_codes, rendezvous, signals
from launch.lint.rule import Rule
from launch.lint.script import Script

RULES = [
    value
    for module in (directives, exit_codes, rendezvous, signals)
    for value in vars(module).values()
    if isinstance(value, Rule)
]


@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """A rule and the line that breaks it."""

    number: int
    rule: Rule


def lint(script: Script) -> list[LintFinding]:
    """Return the findings of all rules, sorted by line and rule name."""
    found = [LintFinding(number=number, rule=one) for one in RULES for number in one.find(script)]
    return sorted(found, key=lambda one: (one.number, one.rule.name))


def print_findings(script: Script) -> int:
    """Print the findings; return 1 if any is a warning, else 0."""
    found = lint(script)
    for one in found:
        path = re.sub(r"[^ -~]", "?", str(script.path))
        print(f"{path}:{one.number}: {one.rule.level}: {one.rule.explanation} [{one.rule.name}]")
        print(f"    fix: {one.rule.fix}")
    warnings = sum(one.rule.level == "warning" for one in found)
    remarks = plural(len(found) - warnings, "remark")
    print(f"{plural(warnings, 'warning')}, {remarks}", file=sys.stderr)
    return int(warnings > 0)
