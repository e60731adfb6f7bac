"""Collect the evidence about one attempt of a run, or about a job without an attempt."""

import glob
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.run.folder import RunFolder
from configs.run.records import Record, read_records, state
from launch.status.jobs import job_of_attempt, submitted_job
from launch.status.tail import job_output
from launch.why import slurm_history
from launch.why.log_lines import LogLines, Quote, first_quotes, part_of_attempt, read
from launch.why.slurm_history import JobStart

# The last event of an attempt that has ended.
_ENDS = ("done", "stopped", "paused", "skipped", "failed")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of one attempt.

    The last event and its line, the error note of the first failing rank (`error.json`), log
    lines, and the start of the job according to Slurm.
    """

    run: RunFolder | None = None
    attempt: int = 0
    end: Record = field(default_factory=dict)
    end_quote: Quote | None = None
    note: dict[str, Any] = field(default_factory=dict)
    logs: list[LogLines]
    start: JobStart | None

    @property
    def event(self) -> str:
        """The last event; empty if the attempt wrote none."""
        return str(self.end.get("event", ""))

    @property
    def state(self) -> str:
        """Slurm's state of this start of the job; empty if it is not over."""
        return self.start.state if self.start and self.start.is_over else ""

    @property
    def reason(self) -> str:
        """The recorded reason, or that of the first failing rank."""
        return str(self.end.get("reason") or self.note.get("reason") or "")

    @property
    def message(self) -> str:
        """The recorded message, or that of the first failing rank."""
        return str(self.end.get("message") or self.note.get("message") or "")

    def quotes(self, pattern: str) -> list[str]:
        """Return the first lines of the logs that match a pattern."""
        return first_quotes(self.logs, pattern)

    def recorded(self) -> list[str]:
        """Return the end as the error note and the record state it."""
        note = self.folder / "error.json" if self.folder else None
        rank = f"rank {self.note['rank']}: " if "rank" in self.note else ""
        noted = [f"{note}: {rank}{_line(str(self.note.get('message')))}"] if self.note else []
        return noted + ([str(self.end_quote)] if self.end_quote else [])

    def by_slurm(self) -> list[str]:
        """Return the end as Slurm states it."""
        return [str(self.start)] if self.start else []

    @property
    def folder(self) -> Path | None:
        """The attempt's folder."""
        return self.run.attempt(self.attempt) if self.run and self.attempt else None


def _line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "no message"


def evidence_of_attempts(run: RunFolder) -> list[Evidence]:
    """Return the evidence of each attempt, oldest first, and of a job that waits for another."""
    entries = {entry["attempt"]: entry for entry in run.manifest().get("attempts", [])}
    known: dict[str, list[JobStart]] = {}
    found = []
    for number in [*run.attempts(), *([0] if _has_waiting_job(run) else [])]:
        entry = entries.get(number, {})
        job = job_of_attempt(entry) if number else submitted_job(run)
        if job is not None and job not in known:
            known[job] = slurm_history.starts(job)
        start = slurm_history.start_at(known.get(job or "", []), entry.get("time"))
        found.append(_evidence(run, number, job, start))
    return found


def _has_waiting_job(run: RunFolder) -> bool:
    """Return whether the last job of the run has not started an attempt."""
    last = state(run.records())
    return not run.attempts() or (last is not None and last["event"] == "queued")


def _evidence(run: RunFolder, number: int, job: str | None, start: JobStart | None) -> Evidence:
    end, quote = _end(run, number)
    output = job_output(run, job) or (slurm_history.output_of(job) if job else None)
    logs = [part_of_attempt(read(output), run=run.path, number=number)] if output else []
    folder = run.attempt(number)
    return Evidence(
        run=run,
        attempt=number,
        end=end,
        end_quote=quote,
        note=_note(folder) if number else {},
        logs=logs + (list(_attempt_logs(folder)) if number else []),
        start=start,
    )


def evidence_of_job(job: str, logs: Path) -> Evidence:
    """Return the evidence of a job that belongs to no run."""
    known = slurm_history.starts(job)
    output = slurm_history.output_of(job)
    found = [output] if output else list(logs.glob(f"*-{glob.escape(job)}.out"))
    return Evidence(
        logs=[read(path) for path in found if path.exists()],
        start=known[-1] if known else None,
    )


def _end(run: RunFolder, number: int) -> tuple[Record, Quote | None]:
    """Return the last event of an attempt and its line."""
    end: Record = {}
    quote = None
    lines = read(run.metrics_file).lines
    for line, record in read_records(run.metrics_file):
        if number and record.get("attempt") != number:
            continue
        if record.get("event") in (_ENDS if number else (*_ENDS, "queued")):
            end = record
            quote = Quote(path=run.metrics_file, number=line, text=lines[line - 1])
    return end, quote


def _note(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "error.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _attempt_logs(folder: Path) -> Iterator[LogLines]:
    """Yield the logs of ranks and agents, ranks first: they are closest to the cause."""
    ranks = sorted((folder / "ranks").glob("*.log"))
    agents = sorted(
        path
        for path in (folder / "torchrun").rglob("*")
        if re.fullmatch(r"std(out|err)\.log|error\.json", path.name)
    )
    for path in (*ranks, folder / "output.log", *agents):
        if path.exists():
            yield read(path)
