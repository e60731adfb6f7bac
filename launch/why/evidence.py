"""Diagnose each attempt of a run by all evidence of its end."""

import re
from collections.abc import Iterator
from pathlib import Path

from launch.status.tail import job_output
from launch.why import slurm_history
from launch.why.diagnosis import Diagnosis
from runs.folder import RunFolder
from runs.jobs import awaited_job, job_of_attempt
from runs.json_files import AttemptEntry, read_error_note
from runs.state.evidence import Evidence
from runs.state.fold import fold, run_state
from runs.state.log_lines import LogLines, part_of_attempt, read
from runs.state.slurm_job import SlurmJob


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
            known[job] = slurm_history.starts(job)
        is_newest = number == numbers[-1]
        events = [one for one in records if one["attempt"] == number or not number]
        start = slurm_history.start_at(known.get(job or "", []), entry.get("time"))
        process = _traces(run, number, job)
        diagnosis = Diagnosis(
            process=process,
            state=fold(events, start, process),
            start=start,
            now=slurm_history.current(job) if is_newest and job is not None else None,
        )
        found.append(diagnosis)
    return found


def _has_waiting_job(run: RunFolder) -> bool:
    """Return whether the last job of the run has not started an attempt."""
    state = run_state(run)
    return state.is_queued and state.attempt not in run.attempts()


def _traces(run: RunFolder, number: int, job: str | None) -> Evidence:
    output = job_output(run, job) or (_output_of(job) if job else None)
    logs = [part_of_attempt(read(output), run=run.path, number=number)] if output else []
    folder = run.attempt(number)
    return Evidence(
        run=run,
        attempt=number,
        note=read_error_note(folder) if number else {},
        logs=logs + (list(_attempt_logs(folder)) if number else []),
        is_preemptable=slurm_history.is_preemptable,
    )


def _output_of(job: str) -> Path | None:
    now = slurm_history.current(job)
    return now.output if now else None


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
