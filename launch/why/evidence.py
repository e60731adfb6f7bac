"""Collect the evidence about one attempt of a run, or about a job without an attempt."""

import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from launch.status.tail import job_output
from launch.why import slurm_history
from launch.why.log_lines import (
    LogLines,
    Quote,
    first_quotes,
    last_exception,
    part_of_attempt,
    read,
)
from launch.why.slurm_history import JobStart
from runs.folder import RunFolder
from runs.jobs import CANCELLED, awaited_job, job_of_attempt
from runs.json_files import AttemptEntry, ErrorNote, read_error_note
from runs.records import Record, read_records, state

# The line of a job's output that names the run and its attempt.
RUN_BEGAN = r"^run /.*, attempt \d+$"
# The last event of an attempt that has ended.
_ENDS = ("done", "stopped", "paused", "skipped", "failed")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of one attempt.

    The last event and its line, the error note of the first failing rank (`error.json`), log
    lines, the start of the job according to Slurm, and the job as it is `now`. A job that is not
    ours is of another program.
    """

    run: RunFolder | None = None
    attempt: int = 0
    end: Record = field(default_factory=dict)
    end_quote: Quote | None = None
    note: ErrorNote = field(default_factory=ErrorNote)
    logs: list[LogLines]
    start: JobStart | None
    now: JobStart | None = None
    is_ours: bool = True

    @property
    def event(self) -> str:
        """The last event; empty if the attempt wrote none."""
        return str(self.end.get("event", ""))

    @property
    def has_not_ended(self) -> bool:
        """Whether an attempt, or the job of none, may still go on."""
        is_open = self.event in ("", "queued")
        return is_open and (self.start is None or not self.start.is_over)

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

    @cached_property
    def exception(self) -> str:
        """The line of code and the exception that a rank, or the job, printed last."""
        noted = str(self.note.get("traceback", "")).splitlines()
        texts = [noted, *(log.lines for log in self.logs)]
        return next(filter(None, map(last_exception, texts)), "")

    @property
    def is_cancelled(self) -> bool:
        """Whether `launch cancel` cancelled it."""
        marked = self.folder is not None and (self.folder / CANCELLED).exists()
        return self.event in ("stopped", "") and (marked or "cancelled while" in self.message)

    @property
    def output(self) -> Path | None:
        """The file to read: the output of the ranks, else of the job; None if there is none."""
        files = [log.path for log in self.logs if any(log.last())]
        own = [path for path in files if path.name == "output.log"]
        return next(iter(own + files), None)

    def last_lines(self) -> list[str]:
        """Return the last line of each log."""
        return [str(quote) for log in self.logs for quote in log.last()]

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
    entries = {entry["attempt"]: entry for entry in run.entries()}
    known: dict[str, list[JobStart]] = {}
    found = []
    for number in [*run.attempts(), *([0] if _has_waiting_job(run) else [])]:
        entry = entries.get(number, AttemptEntry(attempt=number))
        job = job_of_attempt(entry) if number else awaited_job(run)
        if job is not None and job not in known:
            known[job] = slurm_history.starts(job)
        start = slurm_history.start_at(known.get(job or "", []), entry.get("time"))
        found.append(_evidence(run, number, job, start))
    if found and job is not None:
        found[-1] = replace(found[-1], now=slurm_history.current(job))
    return found


def _has_waiting_job(run: RunFolder) -> bool:
    """Return whether the last job of the run has not started an attempt."""
    last = state(run.records()) or {"event": "queued", "attempt": 0}
    return last["event"] == "queued" and last["attempt"] not in run.attempts()


def _evidence(run: RunFolder, number: int, job: str | None, start: JobStart | None) -> Evidence:
    end, quote = _end(run, number)
    output = job_output(run, job) or (_output_of(job) if job else None)
    logs = [part_of_attempt(read(output), run=run.path, number=number)] if output else []
    folder = run.attempt(number)
    return Evidence(
        run=run,
        attempt=number,
        end=end,
        end_quote=quote,
        note=read_error_note(folder) if number else {},
        logs=logs + (list(_attempt_logs(folder)) if number else []),
        start=start,
    )


def evidence_of_job(job: str, logs: Path) -> Evidence:
    """Return the evidence of a job that belongs to no run."""
    known = slurm_history.starts(job)
    now = slurm_history.current(job)
    name, folder = slurm_history.name_and_folder(job)
    found = [now.output] if now and now.output else list(logs.glob(f"*-{glob.escape(job)}.out"))
    found = found or [folder / f"slurm-{job}.out"]
    read_logs = [read(path) for path in found if path.exists()]
    began = first_quotes(read_logs, RUN_BEGAN)
    return Evidence(
        logs=read_logs,
        start=known[-1] if known else None,
        now=now,
        is_ours=bool(began) or (folder / "jobs" / f"{name}.sbatch").is_file(),
    )


def _output_of(job: str) -> Path | None:
    now = slurm_history.current(job)
    return now.output if now else None


def _end(run: RunFolder, number: int) -> tuple[Record, Quote | None]:
    """Return the last event of an attempt and its line."""
    end: Record = {}
    quote = None
    for line, record in read_records(run.metrics_file):
        if number and record.get("attempt") != number:
            continue
        if record.get("event") in (_ENDS if number else (*_ENDS, "queued")):
            end = record
            quote = Quote(path=run.metrics_file, number=line, text=_in_words(record))
    return end, quote


def _in_words(record: Record) -> str:
    """Return `paused at step 326`, or `failed (oom) at step 7: message`."""
    reason = f" ({record['reason']})" if "reason" in record else ""
    step = f" at step {record['step']}" if "step" in record else ""
    message = f": {_line(str(record['message']))}" if "message" in record else ""
    return f"{record['event']}{reason}{step}{message}"


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
