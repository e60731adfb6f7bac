"""Check a batch script against every rule and print the findings."""

import re
import sys
from dataclasses import dataclass

from configs.terminal import plural
from launch.lint import directives, exit_codes, rendezvous, signals
from launch.lint.rule import Rule, VersionRange, make_rules, read_table
from launch.lint.script import Script

RULES = make_rules({
    name.replace("_", "-"): value
    for module in (directives, exit_codes, rendezvous, signals)
    for name, value in vars(module).items()
    if getattr(value, "__module__", "") == module.__name__
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """A rule and the line that breaks it."""

    number: int
    rule: Rule


def lint(script: Script, *, version: str | None = None) -> list[LintFinding]:
    """Return the findings of the rules that concern a version, sorted by line and rule name.

    Without a version all rules count.
    """
    rules = [one for one in RULES if one.versions.holds(version)]
    found = [LintFinding(number=number, rule=one) for one in rules for number in one.find(script)]
    return sorted(found, key=lambda one: (one.number, one.rule.name))


def print_findings(script: Script, *, version: str | None = None) -> int:
    """Print the findings for a version of Slurm; return 1 if any is a warning, else 0.

    Without a version, each says for which versions it holds.
    """
    found = lint(script, version=version)
    for one in found:
        path = re.sub(r"[^ -~]", "?", str(script.path))
        versions = str(one.rule.versions)
        within = f"{versions}: " if version is None and versions else ""
        text = f"{within}{one.rule.explanation} [{one.rule.name}]"
        print(f"{path}:{one.number}: {one.rule.level}: {text}")
        print(f"    fix: {one.rule.fix}")
    warnings = sum(one.rule.level == "warning" for one in found)
    remarks = plural(len(found) - warnings, "remark")
    print(f"{plural(warnings, 'warning')}, {remarks}", file=sys.stderr)
    return int(warnings > 0)


def changes(version: str, config: str) -> list[str]:
    """Return what concerns a version of Slurm and the text of its `scontrol show config`."""
    limited = [one for one in RULES if str(one.versions) and one.versions.holds(version)]
    notes = [
        note["text"]
        for note in read_table()["notes"].values()
        if VersionRange(since=note.get("since"), until=note.get("until")).holds(version)
        and note.get("setting", "") in config
    ]
    return [*(one.explanation for one in limited), *notes]
