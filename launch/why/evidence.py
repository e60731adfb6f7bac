"""All that is left of one attempt at a run, or of a job that made none."""

import glob
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.run.folder import RunFolder
from configs.run.records import Record, read_records, state
from launch.status import submitted_jobs
from launch.status.tail import job_output
from launch.why import slurm_history
from launch.why.log_lines import LogLines, Quote, first_quotes, part_of_attempt, read
from launch.why.slurm_history import Start

# What an attempt may end with.
_ENDS = ("done", "stopped", "paused", "skipped", "failed")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The last event and its quote, the note of the first failing rank, texts, and Slurm's word."""

    run: RunFolder | None
    attempt: int
    began: float | None
    end: Record
    end_quote: Quote | None
    step: int | None
    note: dict[str, Any]
    texts: list[LogLines]
    start: Start | None

    @property
    def event(self) -> str:
        """Its last event; empty where it wrote none."""
        return str(self.end.get("event", ""))

    @property
    def state(self) -> str:
        """What Slurm calls the end of this start of the job; empty where it is not over."""
        return self.start.state if self.start and self.start.is_over else ""

    @property
    def reason(self) -> str:
        """The reason that was recorded, or that the first failing rank noted."""
        return str(self.end.get("reason") or self.note.get("reason") or "")

    @cached_property
    def said(self) -> str:
        """The recorded message."""
        return str(self.end.get("message") or self.note.get("message") or "")

    def quotes(self, pattern: str) -> list[str]:
        """Lines of the texts in which a pattern is found."""
        return first_quotes(self.texts, pattern)

    def recorded(self) -> list[str]:
        """The end as the run's own records and the rank's note have it."""
        note = self.folder / "error.json" if self.folder else None
        rank = f"rank {self.note['rank']}: " if "rank" in self.note else ""
        noted = [f"{note}: {rank}{_line(str(self.note.get('message')))}"] if self.note else []
        return noted + ([str(self.end_quote)] if self.end_quote else [])

    def by_slurm(self) -> list[str]:
        """Slurm's word, as evidence."""
        return [str(self.start)] if self.start else []

    @property
    def folder(self) -> Path | None:
        """The attempt's folder."""
        return self.run.attempt(self.attempt) if self.run and self.attempt else None


def _line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "no message"


def evidence_of_attempts(run: RunFolder) -> list[Evidence]:
    """One scene per attempt, the oldest first; then one without attempt, if a job waits."""
    entries = {entry["attempt"]: entry for entry in run.manifest().get("attempts", [])}
    known: dict[str, list[Start]] = {}
    found = []
    for number in [*run.attempts(), *([0] if _waits(run) else [])]:
        entry = entries.get(number, {})
        job = _job(entry) if number else submitted_jobs.submitted_job(run)
        if job is not None and job not in known:
            known[job] = slurm_history.starts(job)
        found.append(_scene(run, number, entry, job, known.get(job or "", [])))
    return found


def _waits(run: RunFolder) -> bool:
    """Whether the last job for the run has not begun an attempt at it."""
    last = state(run.records())
    return not run.attempts() or (last is not None and last["event"] == "queued")


def _scene(
    run: RunFolder,
    number: int,
    entry: dict[str, Any],
    job: str | None,
    known: list[Start],
) -> Evidence:
    began = entry.get("time")
    end, quote, step = _end(run, number)
    output = job_output(run, job) or (slurm_history.output_of(job) if job else None)
    texts = [part_of_attempt(read(output), run=run.path, number=number)] if output else []
    folder = run.attempt(number)
    return Evidence(
        run=run,
        attempt=number,
        began=began,
        end=end,
        end_quote=quote,
        step=step,
        note=_note(folder) if number else {},
        texts=texts + (list(_own_texts(folder)) if number else []),
        start=slurm_history.start_at(known, began),
    )


def evidence_of_job(job: str, logs: Path) -> Evidence:
    """What is left of a job that no run tells of."""
    known = slurm_history.starts(job)
    output = slurm_history.output_of(job)
    found = [output] if output else list(logs.glob(f"*-{glob.escape(job)}.out"))
    return Evidence(
        run=None,
        attempt=0,
        began=None,
        end={},
        end_quote=None,
        step=None,
        note={},
        texts=[read(path) for path in found if path.exists()],
        start=known[-1] if known else None,
    )


def _job(entry: dict[str, Any]) -> str | None:
    slurm = entry.get("slurm") or {}
    if "array_job" in slurm and "array_task" in slurm:
        return f"{slurm['array_job']}_{slurm['array_task']}"
    return slurm.get("job")


def _end(run: RunFolder, number: int) -> tuple[Record, Quote | None, int | None]:
    """The event that an attempt ended with, its line, and the last step that it recorded."""
    end: Record = {}
    quote, step = None, None
    lines = read(run.metrics_file).lines
    for line, record in read_records(run.metrics_file):
        if number and record.get("attempt") != number:
            continue
        step = record.get("step", step)
        if record.get("event") in (_ENDS if number else (*_ENDS, "queued")):
            end = record
            quote = Quote(path=run.metrics_file, number=line, text=lines[line - 1])
    return end, quote, step


def _note(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "error.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _own_texts(folder: Path) -> Iterator[LogLines]:
    """What ranks and agents wrote: the ranks first, whose words are nearest to the cause."""
    ranks = sorted((folder / "ranks").glob("*.log"))
    agents = sorted(
        path
        for path in (folder / "torchrun").rglob("*")
        if re.fullmatch(r"std(out|err)\.log|error\.json", path.name)
    )
    for path in (*ranks, folder / "output.log", *agents):
        if path.exists():
            yield read(path)
