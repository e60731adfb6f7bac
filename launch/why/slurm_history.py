"""What Slurm remembers of a job's starts: sacct, else scontrol while that still knows it."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from launch.slurm import client, duration
from launch.slurm.client import Refused

_FIELDS = ("State", "ExitCode", "Start", "End", "Timelimit", "Reason", "Partition", "NodeList")


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a job and how it ended; empty and None where that is not known.

    Times are in seconds since 1970; `teller` is the command that said so.
    """

    job: str
    teller: str
    state: str = ""
    exit_code: str = ""
    begun: float | None = None
    ended: float | None = None
    limit_s: int | None = None
    reason: str = ""
    partition: str = ""
    nodes: str = ""
    output: Path | None = None

    @property
    def is_over(self) -> bool:
        """Whether this start is over, whatever became of the job."""
        return self.state in client.ENDED or self.state == "REQUEUED"

    def __str__(self) -> str:
        said = [self.state, f"exit code {self.exit_code}", self.reason]
        return f"{self.teller}: job {self.job}: {', '.join(word for word in said if word)}"


def starts(job: str) -> list[Start]:
    """The starts of a job, the oldest first; empty where Slurm cannot be asked or forgot it."""
    accounted, shown = _from_sacct(job), _from_scontrol(job)
    if shown is None:
        return accounted
    if not accounted:
        return [shown]
    # sacct hears of an end some seconds later, and knows no output file.
    last = accounted[-1]
    if shown.is_over and not last.is_over:
        return [*accounted[:-1], shown]
    return accounted


def output_of(job: str) -> Path | None:
    """Where a job's own output is, while Slurm knows it."""
    shown = _from_scontrol(job)
    return shown.output if shown else None


def start_at(known: list[Start], when: float | None) -> Start | None:
    """The start that was under way at a time; the last one where no time is given."""
    if when is None:
        return known[-1] if known else None
    # Slurm's times are whole seconds.
    under_way = [
        one
        for one in known
        if (one.begun is None or one.begun <= when + 1) and (one.ended is None or when < one.ended)
    ]
    return under_way[-1] if under_way else None


def is_preemptable(partition: str) -> bool | None:
    """Whether jobs in a partition make way for others; None where nobody says."""
    answer = _ask("scontrol", "show", "partition", partition, "-o") if partition else ""
    mode = re.search(r"\bPreemptMode=(\S+)", answer)
    return mode[1] not in ("OFF", "GANG") if mode else None


def _ask(*command: str) -> str:
    try:
        answer = client.run(*command)
    except (ConfigError, Refused):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _from_sacct(job: str) -> list[Start]:
    said = _ask(
        "sacct", "-n", "-X", "-D", "--parsable2", f"--jobs={job}", f"--format={','.join(_FIELDS)}"
    )
    rows = [line.split("|") for line in said.splitlines() if line.count("|") == len(_FIELDS) - 1]
    return [
        Start(
            job=job,
            teller="sacct",
            state=state.split()[0] if state else "",
            exit_code=code,
            begun=_time(begun),
            ended=_time(ended),
            limit_s=duration.seconds(limit),
            reason="" if reason == "None" else reason,
            partition=partition,
            nodes=nodes,
        )
        for state, code, begun, ended, limit, reason, partition, nodes in rows
        if _time(begun) or not rows[1:]
    ]


def _from_scontrol(job: str) -> Start | None:
    said = _ask("scontrol", "show", "job", job, "-o").strip().splitlines()
    if not said:
        return None

    def field(name: str) -> str:
        found = re.search(rf"(?:^|\s){name}=(\S*)", said[-1])
        return "" if found is None or found[1] in ("None", "(null)") else found[1]

    state = field("JobState")
    output = re.search(r"\sStdOut=(.*?)(?:\s+[A-Z]\w*=|$)", said[-1])
    return Start(
        job=job,
        teller="scontrol",
        state=state,
        exit_code=field("ExitCode"),
        begun=_time(field("StartTime")),
        ended=_time(field("EndTime")) if state in client.ENDED else None,
        limit_s=duration.seconds(field("TimeLimit")),
        reason=field("Reason"),
        partition=field("Partition"),
        nodes=field("NodeList"),
        output=Path(output[1].strip()) if output else None,
    )


def _time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
