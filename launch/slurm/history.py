"""The starts of a job according to Slurm: from sacct, or from scontrol while it knows the job."""

import re
from pathlib import Path

from configs.errors import ConfigError
from launch.slurm import client
from launch.slurm.client import Refused, parse_time
from runs.state.slurm_job import ENDED, SlurmJob


def starts(job: str) -> list[SlurmJob]:
    """Return the starts of a job, oldest first; empty if Slurm is silent or has forgotten it."""
    rows, now = client.accounted([job]), current(job)
    # A job that was requeued and waits has a row without a start.
    accounted = [one for one in rows if one.started or len(rows) == 1]
    if now is None:
        return accounted
    if not accounted:
        return [now]
    # sacct learns of an end some seconds later.
    if now.is_over and not accounted[-1].is_over:
        return [*accounted[:-1], now]
    return accounted


def start_at(known: list[SlurmJob], when: float | None) -> SlurmJob | None:
    """Return the start that was under way at a time, or the last one if `when` is None."""
    if when is None:
        return known[-1] if known else None
    # Slurm's times are whole seconds.
    under_way = [
        one
        for one in known
        if (one.started is None or one.started <= when + 1)
        and (one.ended is None or when < one.ended)
    ]
    return under_way[-1] if under_way else None


def is_preemptable(partition: str) -> bool:
    """Return whether Slurm says that jobs in a partition can be preempted."""
    shown = _show("partition", partition) if partition else ""
    return client.shown_field(shown, "PreemptMode") not in ("", "OFF", "GANG")


def _show(kind: str, name: str) -> str:
    try:
        return client.show(kind, name, "-o")
    except (ConfigError, Refused):
        return ""


def current(job: str) -> SlurmJob | None:
    """Return the job as scontrol shows it; `started` of a waiting job is Slurm's estimate."""
    lines = _show("job", job).strip().splitlines()
    if not lines:
        return None

    def field(name: str) -> str:
        value = client.shown_field(lines[-1], name)
        return "" if value in ("None", "(null)") else value

    state = field("JobState")
    output = re.search(r"\sStdOut=(.*?)(?:\s+[A-Z]\w*=|$)", lines[-1])
    return SlurmJob(
        job=job,
        source="scontrol",
        state=state,
        exit_code=field("ExitCode"),
        started=parse_time(field("StartTime")),
        ended=parse_time(field("EndTime")) if state in ENDED else None,
        limit_s=client.parse_duration(field("TimeLimit")),
        reason=field("Reason"),
        partition=field("Partition"),
        nodes=field("NodeList"),
        output=Path(output[1].strip()) if output else None,
    )
