"""Refuse a submission with every reason at once, and ask before a large one."""

import sys
from collections.abc import Callable, Sequence

from configs.errors import ConfigError
from launch.slurm.client import NoSlurm, Refused

Refusal = ConfigError | Refused
# A topic, and a function that raises a refusal or returns remarks.
Check = tuple[str, Callable[[], Sequence[str] | None]]
# From this number of runs, a person at a terminal is asked.
ASK_FROM = 20


def run_checks(checks: Sequence[Check], *, needs_slurm: bool) -> tuple[list[Refusal], list[str]]:
    """Return the refusals of all checks, and the remarks of those that passed."""
    refusals: list[Refusal] = []
    remarks: list[str] = []
    for _, check in checks:
        try:
            remarks += check() or []
        except (ConfigError, Refused) as error:
            if isinstance(error, NoSlurm) and not needs_slurm:
                remarks.append(f"the cluster is not asked: {str(error).partition(':')[0]}")
            else:
                refusals.append(error)
    return refusals, list(dict.fromkeys(remarks))


def enforce(checks: Sequence[Check], *, force: bool) -> list[str]:
    """Raise the refusals of all checks as one; return the remarks. `force` makes them remarks."""
    refusals, remarks = run_checks(checks, needs_slurm=True)
    if force or not refusals:
        return [*(f"warning: {one}" for one in refusals), *remarks]
    raise type(refusals[0])("\n".join(dict.fromkeys(map(str, refusals))))


def report(checks: Sequence[Check]) -> int:
    """Print what a submission would be refused for; return 1 if anything, as --dry-run does."""
    refusals, remarks = run_checks(checks, needs_slurm=False)
    lines = [*(f"warning: submit would refuse this: {one}" for one in refusals), *remarks]
    for line in dict.fromkeys(lines):
        print(line, file=sys.stderr)
    return int(bool(refusals))


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
