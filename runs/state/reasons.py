"""The reasons why a run or a job ends: what each means, how output shows it, what to type next.

The one table of them is reasons.yaml: ranks, the end of an attempt, requeueing, `ditbench why` and
the readers of logs all use it.
"""

import errno
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydantic import Field

from configs.schema.key import KeyGroup
from configs.yaml12 import parse_yaml


class Reason(KeyGroup):
    """One reason, as reasons.yaml describes it, with the meaning of each field.

    `passes` is None if the reason is not a failure's. Otherwise it says whether another attempt,
    with nothing changed, may pass, and `at_once` whether even if the last one saved nothing.
    """

    name: str
    title: str
    meaning: str
    passes: bool | None = None
    at_once: bool = False
    event: str = ""
    job: str = "(?!)"
    slurm: str = ""
    ends: list[str] = Field(default_factory=list)
    message: str = "(?!)"
    output: str = ""
    advice: dict[str, str]

    @property
    def pattern(self) -> str:
        """The regular expression for a line by Slurm or by a rank."""
        return "|".join(filter(None, (self.slurm, self.output)))

    def advice_for(self, kind: str) -> str:
        """Return what to type next for a run of a kind."""
        return self.advice.get(kind) or self.advice["default"]


@cache
def reasons() -> dict[str, Reason]:
    """Return every reason by its name, roots before the failures that follow from them."""
    path = Path(__file__).with_name("reasons.yaml")
    table = parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
    return {name: _reason(name, entry) for name, entry in table.items()}


def _reason(name: str, entry: dict[str, object]) -> Reason:
    patterns = {key: "|".join(entry[key]) for key in ("slurm", "output") if key in entry}  # type: ignore[arg-type]
    advice = entry["advice"]
    by_kind = {"advice": advice if isinstance(advice, dict) else {"default": advice}}
    return Reason.model_validate({"name": name, "title": name} | entry | patterns | by_kind)


@cache
def failures() -> tuple[str, ...]:
    """Return the names of the reasons that a record of a failure may have, roots first."""
    return tuple(name for name, reason in reasons().items() if reason.passes is not None)


def is_disk_full(error: OSError) -> bool:
    """Return whether a file could not be written for lack of space or of quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def find_reason(text: str, *, among: Iterable[str] | None = None) -> str | None:
    """Return the first reason of a failure, or of those `among`, whose pattern is in `text`."""
    for name in failures() if among is None else among:
        pattern = reasons()[name].pattern
        if pattern and re.search(pattern, text):
            return name
    return None
