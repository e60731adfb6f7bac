"""Diagnose each attempt of a run by all evidence of its end."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from configs.files import open_regular
from launch.slurm import history
from launch.status.tail import job_output
from runs.folder import RunFolder
from runs.jobs import awaited_job, job_of_attempt
from runs.json_files import AttemptEntry, read_error_note
from runs.state.evidence import Evidence
from runs.state.first_failure import first_failure
from runs.state.fold import fold, run_state
from runs.state.log_lines import LogLines
from runs.state.reasons import Reason, reasons
from runs.state.run_state import RunState
from runs.state.slurm_job import SlurmJob

# Only the end of a longer file is read.
_MAX_BYTES = 8 * 2**20
# The file, the rank and the kind of error in front of a message.
_SOURCE = re.compile(
    r"^.*?: (?:\[[^\]]*\]: ?|rank \d+: |failed [^:]*: |[\w.]+(?:Error|Exception): )*"
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The end of an attempt, or of a job that waits, and its reason.

    `process` are its traces, and `state` the state with the start of its job, and with the reason
    that the fold found. `now` is the job as it is now.
    """

    process: Evidence
    state: RunState
    now: SlurmJob | None = None

    @property
    def reason(self) -> Reason | None:
        """The reason of the end, None if the attempt has not ended or the reason is unknown."""
        return None if self.state.reason is None else reasons()[self.state.reason]

    @property
    def has_not_ended(self) -> bool:
        """Whether the attempt may still go on."""
        is_over = self.state.slurm is not None and self.state.slurm.is_over
        return self.state.is_open and not self.state.is_paused and not is_over

    @cached_property
    def first_failure(self) -> str:
        """The rank that failed first, such as "rank 3 on node-2"; empty if unknown, or none did."""
        return first_failure(self.process, self.reason) if self.reason else ""

    @property
    def output(self) -> Path | None:
        """The file to read: the output of the ranks, else of the job; None if there is none."""
        files = [log.path for log in self.process.logs if log.last()]
        own = [path for path in files if path.name == "output.log"]
        return next(iter(own + files), None)

    @cached_property
    def lines(self) -> list[str]:
        """The lines that say something new, with paths from the run, LOGS or this folder."""
        run, folder, shown = self.process.run, self.process.folder, list(self.state.evidence)
        if self.reason and folder and any(folder.glob("ranks/nccl-*")):
            shown.append(f"collectives: torchfrtrace {folder}/ranks -p nccl-")
        kept: list[str] = []
        for line in shown:
            for place in (run.path, run.path.parent, Path.cwd()):
                line = line.removeprefix(f"{place}/")
            said = _SOURCE.sub("", line)[:80]
            if not any(said in other for other in kept):
                kept.append(line)
        return kept


def diagnoses_of_run(run: RunFolder) -> list[Diagnosis]:
    """Return the diagnosis of each attempt, oldest first, and of the job that waits for another."""
    entries = {entry["attempt"]: entry for entry in run.entries()}
    records = [record for record in run.records() if "event" in record]
    known: dict[str, list[SlurmJob]] = {}
    numbers = [*run.attempts(), *([0] if _has_waiting_job(run) else [])] or [0]
    found = []
    for number in numbers:
        entry = entries.get(number, AttemptEntry(attempt=number))
        job = job_of_attempt(entry) if number else awaited_job(run)
        if job is not None and job not in known:
            known[job] = history.starts(job)
        events = [one for one in records if one["attempt"] == number or not number]
        start = history.start_at(known.get(job or "", []), entry.get("time"))
        process = _traces(run, number, job)
        is_newest = number == numbers[-1]
        now = history.current(job) if is_newest and job is not None else None
        found.append(Diagnosis(process=process, state=fold(events, start, process), now=now))
    return found


def _has_waiting_job(run: RunFolder) -> bool:
    """Return whether the last job of the run has not started an attempt."""
    state = run_state(run)
    return state.is_queued and state.attempt not in run.attempts()


def _traces(run: RunFolder, number: int, job: str | None) -> Evidence:
    output = job_output(run, job)
    if output is None and job and (now := history.current(job)):
        output = now.output
    logs = [_part_of_attempt(_read(output), run=run.path, number=number)] if output else []
    folder = run.attempt(number)
    return Evidence(
        run=run,
        attempt=number,
        note=read_error_note(folder) if number else {},
        logs=logs + (list(_attempt_logs(folder)) if number else []),
        is_preemptable=history.is_preemptable,
    )


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
            yield _read(path)


def _read(path: Path) -> LogLines:
    """Return the lines of a file; none if it cannot be read."""
    first = 1
    try:
        with open_regular(path) as file:
            skipped = max(0, file.seek(0, 2) - _MAX_BYTES)
            file.seek(0)
            while left := skipped - file.tell():
                first += file.read(min(left, _MAX_BYTES)).count(b"\n")
            content = file.read(2 * _MAX_BYTES)
    except OSError:
        content = b""
    lines = content.decode(errors="replace").split("\n")
    return LogLines(path=path, first=first, lines=tuple(lines))


def _part_of_attempt(log: LogLines, *, run: Path, number: int) -> LogLines:
    """Return the part of a job's output for one attempt; a requeued job appends to its file."""
    starts = {
        int(found[1]): i
        for i, line in enumerate(log.lines)
        if (found := re.fullmatch(rf"run {re.escape(str(run))}, attempt (\d+)", line))
    }
    if number not in starts:
        # Without any attempt the output is from before the first one.
        return log if not starts else LogLines(path=log.path, first=1, lines=())
    later = [i for other, i in starts.items() if other > number]
    begin, end = starts[number], min(later, default=len(log.lines))
    return LogLines(path=log.path, first=log.first + begin, lines=log.lines[begin:end])
