"""One start of a job, according to Slurm."""

from dataclasses import dataclass
from pathlib import Path

# Slurm is done with a job in these states.
ENDED = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED",
        "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    )
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """One start of a job; unknown fields are empty or None, and no state means an unknown job.

    Times are in seconds since 1970; `started` of a waiting job is Slurm's estimate. `left_s` are
    the seconds to the time limit `limit_s`. `source` is the command that reported the job.
    """

    state: str = ""
    job: str = ""
    source: str = ""
    exit_code: str = ""
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    limit_s: int | None = None
    left_s: int | None = None
    partition: str = ""
    nodes: str = ""
    output: Path | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the job waits in the queue."""
        return self.state == "PENDING"

    @property
    def has_ended(self) -> bool:
        """Whether Slurm is done with the job."""
        return self.state in ENDED

    @property
    def is_over(self) -> bool:
        """Whether this start is over, even if the job was requeued."""
        return self.has_ended or self.state == "REQUEUED"

    def __str__(self) -> str:
        words = [self.state, f"exit code {self.exit_code}", self.reason]
        return f"{self.source}: job {self.job}: {', '.join(word for word in words if word)}"
