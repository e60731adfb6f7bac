"""What a check answers: a line that says pass, warn or fail, and the mend."""

from dataclasses import dataclass
from typing import Literal

from configs.terminal import printable

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One answer; `mend` says what to do where it is no pass."""

    level: Literal["pass", "warn", "fail"]
    topic: str
    said: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f"; mend: {self.mend}" if self.mend else ""
        words = " ".join(f"{self.said}{mend}".split())
        return f"{self.level:4}  {self.topic:12}  {printable(words)}"


def passed(topic: str, said: str) -> CheckResult:
    """All is well."""
    return CheckResult(level="pass", topic=topic, said=said)


def warning(topic: str, said: str, mend: str = "") -> CheckResult:
    """It may go wrong, or cannot be told."""
    return CheckResult(level="warn", topic=topic, said=said, mend=mend)


def failure(topic: str, said: str, mend: str = "") -> CheckResult:
    """It will go wrong."""
    return CheckResult(level="fail", topic=topic, said=said, mend=mend)
