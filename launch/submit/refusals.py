"""Refuse a submission with every reason at once, and ask before a large one."""

import sys
from collections.abc import Iterable

from configs.errors import ConfigError
from launch.plan.result import CheckResult
from launch.slurm.client import Refused

# From this number of runs, a person at a terminal is asked.
ASK_FROM = 20


def enforce(results: Iterable[CheckResult], *, force: bool) -> list[str]:
    """Raise the failures as one error; return the remarks. `force` makes failures remarks."""
    found = list(results)
    failed = [one for one in found if one.error or one.level == "fail"]
    reasons = list(dict.fromkeys(str(one.error or one.text) for one in failed))
    if failed and not force:
        kind = ConfigError if isinstance(failed[0].error, ConfigError) else Refused
        raise kind("\n".join(reasons))
    remarks = dict.fromkeys(line for one in found for line in one.remarks)
    return [*(f"warning: {one}" for one in reasons), *remarks]


def confirm(bill: str, *, runs: int, yes: bool) -> None:
    """Print the number of runs and their cost; ask a person at a terminal about many.

    In a script nobody can answer, so it goes on. Raise `Refused` for any answer but yes.
    """
    print(bill, file=sys.stderr)
    if yes or runs < ASK_FROM or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print("submit them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing is submitted; --yes submits without a question")
