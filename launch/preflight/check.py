"""The result of a check: pass, warn or fail, with the fix."""

from dataclasses import dataclass
from typing import Literal

from configs.terminal import printable

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check; `fix` says what to do about a warning or failure."""

    level: Literal["pass", "warn", "fail"]
    topic: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"; fix: {self.fix}" if self.fix else ""
        words = " ".join(f"{self.message}{fix}".split())
        return f"{self.level:4}  {self.topic:12}  {printable(words)}"


def passed(topic: str, message: str) -> CheckResult:
    """Return the result of a check that found no problem."""
    return CheckResult(level="pass", topic=topic, message=message)


def warning(topic: str, message: str, fix: str = "") -> CheckResult:
    """Return the result for a possible problem, or for one that cannot be checked."""
    return CheckResult(level="warn", topic=topic, message=message, fix=fix)


def failure(topic: str, message: str, fix: str = "") -> CheckResult:
    """Return the result for a certain problem."""
    return CheckResult(level="fail", topic=topic, message=message, fix=fix)
