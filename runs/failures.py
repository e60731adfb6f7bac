"""Reasons of failure: what each means, how output shows it, and whether another attempt can pass.

The one table of them is failures.yaml: ranks, closing, requeueing, `launch why` and the log readers
all use it.
"""

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from configs.yaml12 import parse_yaml


@dataclass(frozen=True, kw_only=True)
class FailureReason:
    """One reason of failure, as failures.yaml describes it; no pattern means that no line shows it.

    `can_pass` says whether another attempt, with nothing changed, may succeed.
    """

    meaning: str
    can_pass: bool
    slurm: str = ""
    output: str = ""

    @property
    def pattern(self) -> str:
        """The regular expression for a line by Slurm or by a rank."""
        return "|".join(filter(None, (self.slurm, self.output)))


@cache
def failures() -> dict[str, FailureReason]:
    """Return every reason of failure by its name, in the order of failures.yaml."""
    path = Path(__file__).with_name("failures.yaml")
    table = parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
    for entry in table.values():
        entry |= {name: "|".join(entry[name]) for name in ("slurm", "output") if name in entry}
    return {name: FailureReason(**entry) for name, entry in table.items()}


def is_disk_full(error: OSError) -> bool:
    """Return whether a file could not be written for lack of space or of quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def find_reason(text: str, *, among: Iterable[str]) -> str | None:
    """Return the first of the reasons `among` whose pattern is found in `text`."""
    for reason in among:
        pattern = failures()[reason].pattern
        if pattern and re.search(pattern, text):
            return reason
    return None
