"""How a run is: the state that the fold returns, and the questions that it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runs.records import Record
from runs.state.slurm_job import SlurmJob

# What comes next: its job starts it, it goes on, Slurm requeues it, a person resumes it as it is or
# after a change, or nothing.
Next = Literal["start", "go on", "requeue", "resume", "change", "nothing"]

# The states of a run whose record has its end.
ENDS = ("done", "failed", "stopped", "skipped")


class _Recorded:
    """Whether the state by the record is one of these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, state: "RunState", kind: type | None = None) -> bool:
        return state.recorded in self._names


@dataclass(frozen=True, kw_only=True)
class RunState:
    """How a run is: its state, since when, why, what shows it, and what comes next.

    `recorded` is the state by the record alone, `last` the event that led to it. `reason` is a key
    of reasons.yaml; `step` is the last one that the record names. `progress` are the steps that
    each attempt added to those saved before. `slurm` is its job.
    """

    name: str = "new"
    reason: str | None = None
    since: float | None = None
    step: int | None = None
    evidence: tuple[str, ...] = ()
    next: Next = "start"
    recorded: str = "new"
    last: Record = field(default_factory=dict)
    progress: Mapping[int, int] = field(default_factory=dict)
    slurm: SlurmJob | None = None

    is_queued = _Recorded("queued")  # it waits for the job that was submitted last
    is_waiting = _Recorded("queued", "paused")  # for its job, or for its next one
    is_started = _Recorded("started")  # ranks have started, and none recorded an end
    is_paused = _Recorded("paused")  # the ranks saved and left, to go on in another attempt
    is_done = _Recorded("done")
    is_failed = _Recorded("failed")
    is_stopped = _Recorded("stopped")  # a person stopped it
    is_skipped = _Recorded("skipped")  # its study left it out

    @property
    def message(self) -> str:
        """The message of the event that led to the state."""
        return str(self.last.get("message", ""))

    @property
    def attempt(self) -> int:
        """The attempt of the event that led to the state, counted from 1; 0 before the first."""
        return int(self.last.get("attempt", 0))

    @property
    def word(self) -> str:
        """The state for people: of a job that ended without a record, as Slurm says."""
        if self.name == "ended" and self.slurm:
            return self.slurm.state.lower().replace("_", " ")
        return self.name

    @property
    def has_events(self) -> bool:
        """Whether any event led to the state; logs of other trainers may have none."""
        return bool(self.last)

    @property
    def is_open(self) -> bool:
        """Whether the record has no end, so that Slurm has to be asked."""
        return self.recorded not in ENDS

    @property
    def may_have_job(self) -> bool:
        """Whether the run waits, runs or may have been requeued: Slurm knows more of its job."""
        return self.is_open or (self.is_failed and self.next == "requeue")

    @property
    def is_requeued(self) -> bool:
        """Whether Slurm says that the job waits for its next start."""
        return self.name == "requeued"

    @property
    def is_training(self) -> bool:
        """Whether ranks run as far as known."""
        return self.name in ("started", "running")
