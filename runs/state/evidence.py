"""The evidence of how an attempt ended."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runs.folder import RunFolder
from runs.jobs import CANCELLED, WHILE_WAITING
from runs.json_files import ErrorNote
from runs.records import Record, read_records
from runs.state.log_lines import LogLines, first_line, quote
from runs.state.slurm_job import SlurmJob


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The traces of one attempt at a run; attempt 0 is a job that waits or did not begin one.

    `note` is what the first failing rank wrote (`error.json`). `status` is the exit status of the
    ranks if they have just left. `fold` fills in `end`, the last event of the attempt, and `slurm`,
    the start of the job. `is_preemptable` tells, by its name, whether jobs of a partition are
    preempted.
    """

    run: RunFolder
    attempt: int = 0
    note: ErrorNote = field(default_factory=ErrorNote)
    logs: list[LogLines] = field(default_factory=list)
    status: int | None = None
    is_preemptable: Callable[[str], bool] = lambda _: False
    end: Record = field(default_factory=dict)
    slurm: SlurmJob | None = None

    @property
    def event(self) -> str:
        """The last event; empty if the attempt wrote none."""
        return str(self.end.get("event", ""))

    @property
    def folder(self) -> Path | None:
        """The attempt's folder."""
        return self.run.attempt(self.attempt) if self.attempt else None

    @property
    def ended_job(self) -> str:
        """Slurm's words about this start of the job; empty if it is not over."""
        return str(self.slurm) if self.slurm and self.slurm.is_over else ""

    @property
    def reason(self) -> str:
        """The recorded reason, or the first failing rank's."""
        return str(self.end.get("reason") or self.note.get("reason") or "")

    @property
    def message(self) -> str:
        """The recorded message, or the first failing rank's."""
        return str(self.end.get("message") or self.note.get("message") or "")

    @property
    def was_told_to_stop(self) -> bool:
        """Whether a person stopped the run; the job script notes a signal sent to itself."""
        has_own = self.folder is not None and (self.folder / "STOP").exists()
        return has_own or self.run.stop_file.exists()

    @property
    def is_not_to_go_on(self) -> bool:
        """Whether a person ended the run for good, which a requeue would undo."""
        return self.is_marked_cancelled or self.run.stop_file.exists()

    @property
    def is_marked_cancelled(self) -> bool:
        """Whether `ditbench cancel` cancelled the attempt, or the job before it."""
        marked = self.folder is not None and (self.folder / CANCELLED).exists()
        return marked or WHILE_WAITING in self.message

    def quotes(self, pattern: str) -> list[str]:
        """Return the first lines of the logs that match a pattern, at most 3 of them."""
        found = [(log.path, *next(log.find(pattern or "(?!)"), (0, ""))) for log in self.logs]
        return [quote(*place) for place in found if place[1]][:3]

    def first_line_like(self, pattern: str) -> str:
        """Return the first line of the logs that matches a pattern; empty if none does."""
        found = (line.strip() for log in self.logs for _, line in log.find(pattern or "(?!)"))
        return next(found, "")

    def noted(self) -> list[str]:
        """Return the end as the error note states it."""
        note = self.folder / "error.json" if self.folder else None
        rank = f"rank {self.note['rank']}: " if "rank" in self.note else ""
        return [f"{note}: {rank}{first_line(str(self.note.get('message')))}"] if self.note else []

    def recorded(self) -> list[str]:
        """Return the end as the error note and the record state it."""
        return [*self.noted(), *self.last_event()]

    def last_event(self) -> list[str]:
        """Return the record of the last event, quoted by its line."""
        if not self.end:
            return []
        file = self.run.metrics_file
        places = [line for line, record in read_records(file) if record == self.end]
        number = places[-1] if places else 0
        return [quote(file, number, _in_words(self.end))]

    def by_slurm(self) -> list[str]:
        """Return the end as Slurm states it."""
        return [str(self.slurm)] if self.slurm else []


def _in_words(record: Record) -> str:
    """Return `paused at step 326`, or `failed (oom) at step 7: message`."""
    reason = f" ({record['reason']})" if "reason" in record else ""
    step = f" at step {record['step']}" if "step" in record else ""
    message = f": {first_line(str(record['message']))}" if "message" in record else ""
    return f"{record['event']}{reason}{step}{message}"
