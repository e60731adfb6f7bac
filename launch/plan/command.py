"""`ditbench plan`: print whether it runs and fits, where, when, for how much, and the script."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from configs.errors import ConfigError
from configs.table import text_table
from launch.plan.result import CheckResult, checked
from launch.slurm.client import Refused

if TYPE_CHECKING:
    from launch.submit.submission import Submission

_MOST_ROWS = 12


def plan(subject: "Submission", *, whole: bool, only: Sequence[str] | None) -> int:
    """Print what would be submitted, `whole` or in short; return 1 if a check fails.

    With `only`, print these texts alone, and the checks that do not pass.
    """
    if only is not None:
        print("\n".join(only))
        told = [one for one in _checks(subject) if one.level == "fail" or one.error or one.remarks]
        for line in map(str, told):
            print(line, file=sys.stderr)
        return _code(told)
    print("checks")
    results = list(_shown(_checks(subject)))
    if rows := subject.rows():
        shown = rows if whole else rows[:_MOST_ROWS]
        print(f"\n{subject.title}\n{text_table(shown, whole=whole)}", flush=True)
        if left := len(rows) - len(shown):
            print(f"and {left} more; --all shows them")
    print(f"\n{subject.bill()}", flush=True)
    print(_outlook(subject), file=sys.stderr)
    print("\nwhat is submitted")
    print("\n".join(subject.scripts()))
    return _code(results)


def _checks(subject: "Submission") -> Iterator[CheckResult]:
    """Yield the checks by which `submit` refuses."""
    yield from subject.checks()
    idle = checked("idle", subject.check_idle)
    yield from [idle] if idle.level == "fail" else []


def _shown(results: Iterable[CheckResult]) -> Iterator[CheckResult]:
    """Print results as they come, and then how many of which level."""
    counts = {"pass": 0, "warn": 0, "fail": 0}
    for result in results:
        print(result, flush=True)
        counts[result.level] += 1
        yield result
    print(", ".join(f"{number} {level}" for level, number in counts.items()), file=sys.stderr)


def _outlook(subject: "Submission") -> str:
    try:
        return subject.outlook()
    except (ConfigError, Refused) as error:
        return f"when it starts is unknown: {error}"


def _code(results: Iterable[CheckResult]) -> int:
    return int(any(one.level == "fail" for one in results))
