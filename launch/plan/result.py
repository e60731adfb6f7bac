"""The result of a check: pass, warn or fail, with the fix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from configs.errors import ConfigError
from configs.terminal import printable
from launch.slurm.client import NoSlurm, Refused

Check = Callable[[], Sequence[str] | None]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check; `fix` says what to do about a warning or failure.

    `error` is the exception that a check ended with, `remarks` are what one that passed has to say.
    """

    level: Literal["pass", "warn", "fail"]
    topic: str
    message: str
    fix: str = ""
    error: ConfigError | Refused | None = None
    remarks: Sequence[str] = ()

    def __str__(self) -> str:
        words = " ".join(self.text.split())
        return f"{self.level:4}  {self.topic:12}  {printable(words)}"

    @property
    def text(self) -> str:
        """The message with its fix."""
        return f"{self.message}; fix: {self.fix}" if self.fix else self.message


def passed(topic: str, message: str) -> CheckResult:
    """Return the result of a check that found no problem."""
    return CheckResult(level="pass", topic=topic, message=message)


def warning(topic: str, message: str, fix: str = "") -> CheckResult:
    """Return the result for a possible problem, or for one that cannot be checked."""
    return CheckResult(level="warn", topic=topic, message=message, fix=fix)


def failure(topic: str, message: str, fix: str = "") -> CheckResult:
    """Return the result for a certain problem."""
    return CheckResult(level="fail", topic=topic, message=message, fix=fix)


def checked(topic: str, check: Check) -> CheckResult:
    """Run a check that raises an error or returns remarks; without Slurm it is a warning."""
    try:
        remarks = check() or ()
    except NoSlurm as error:
        return CheckResult(level="warn", topic=topic, message="Slurm not found", error=error)
    except (ConfigError, Refused) as error:
        return CheckResult(level="fail", topic=topic, message=str(error), error=error)
    if remarks:
        message = "; ".join(remarks)
        return CheckResult(level="warn", topic=topic, message=message, remarks=remarks)
    return passed(topic, "good")
