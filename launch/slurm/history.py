"""The starts of a job according to Slurm, and in words why it waits."""

import re
import time
from pathlib import Path

from configs.errors import ConfigError
from launch.slurm import client
from launch.slurm.client import Refused, parse_time
from runs.state.slurm_job import ENDED, SlurmJob

# Why a job waits.
_REASONS = {
    "": "Slurm has not looked at it yet",
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next, and waits for free nodes",
    "Priority": "jobs with a higher priority go first",
    "Dependency": "after another job",
    "DependencyNeverSatisfied": "the job that it waits for has failed: it never begins",
    "AssocGrpJobsLimit": "as many jobs run as its account or this cluster allows at once",
    "BeginTime": "its begin time has not come, as after a requeue",
    "ReqNodeNotAvail": "a node that it asks for is down or reserved",
    "PartitionTimeLimit": "it asks for more time than its partition allows: it never begins",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows: it never begins",
    "JobHeldUser": "a user holds it (scontrol release)",
    "JobHeldAdmin": "an administrator holds it",
}


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


def in_words(reason: str) -> str:
    """Return a reason in words; one that is not known is split into its words."""
    name = reason.partition(",")[0].strip("() ")
    split = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)
    return _REASONS.get(name, split)


def clock(when: float) -> str:
    """Return a time of today as `10:00:00`, and of another day with its date."""
    is_today = time.strftime("%F") == time.strftime("%F", time.localtime(when))
    return time.strftime("%H:%M:%S" if is_today else "%F %H:%M", time.localtime(when))
