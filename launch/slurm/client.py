"""Run Slurm's commands and parse what they print, with fixed fields and never --json.

Jobs are named as Slurm names them: `7`, or `7_3` for a task of somebody's own array.
"""

import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from runs.state.slurm_job import SlurmJob

_PATIENCE_S = 120

_PREFIXES = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SLURM_")
# A generic resource such as `gpu:a40:2(S:0-1)`; the type may be missing.
_GPUS = re.compile(r"\bgpu:(?:(\w[\w.-]*):)?(\d+)")
# The fields of sacct.
_ACCOUNTED = (
    "JobID", "State", "ExitCode", "Start", "End", "Timelimit", "Reason", "Partition", "NodeList",
)  # fmt: skip
_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")


class Refused(Exception):
    """The cluster refuses a request; the message says why and how to fix it."""


class NoSlurm(ConfigError):
    """A command of Slurm is not installed on this machine, or knows of no cluster."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition and the time limit of a job in it; None is no limit."""

    name: str
    is_default: bool
    max_time_s: int | None


def conflicting_variables() -> list[str]:
    """Return variables that override `#SBATCH` lines, filter output or belong to an outer job."""
    found = [name for name in os.environ if name.startswith(_PREFIXES) and name != "SLURM_CONF"]
    return sorted(found) + (["ENVIRONMENT"] if os.environ.get("ENVIRONMENT") == "BATCH" else [])


def is_installed() -> bool:
    """Return whether the commands of Slurm are here."""
    return shutil.which("sbatch") is not None


def version() -> str | None:
    """Return the version of the cluster's Slurm, such as `24.11.5`; None if there is none."""
    try:
        answer = run("sinfo", "--version")
    except (NoSlurm, Refused):
        return None
    found = re.search(r"\d+\.\d+(\.\d+)?", answer.stdout)
    return found[0] if found else None


def run(
    *command: str,
    text: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    umask: int = -1,
    timeout_s: float | None = _PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm, `text` on its stdin; by default without the conflicting variables.

    Raise `NoSlurm` if it is not installed, `Refused` if it does not answer in 2 minutes.
    """
    if environment is None:
        hidden = conflicting_variables()
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
    fix = "submit from a machine with Slurm, or run here with --local"
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            umask=umask,
            input=text,
            capture_output=True,
            timeout=timeout_s,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError:
        raise NoSlurm(f"{command[0]} not found: {fix}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{command[0]} did not answer within 2 minutes; try again later") from None
    if answer.returncode and "Could not establish a configuration source" in answer.stderr:
        raise NoSlurm(f"{command[0]} finds no cluster: {fix}")
    return answer


def partitions() -> list[Partition]:
    """Return the cluster's partitions."""
    answer = run("sinfo", "--noheader", "--format=%P|%l")
    if answer.returncode:
        raise Refused(f"sinfo fails: {answer.stderr.strip()}")
    rows = [line.split("|") for line in dict.fromkeys(answer.stdout.splitlines())]
    return [
        Partition(
            name=row[0].removesuffix("*"),
            is_default=row[0].endswith("*"),
            max_time_s=parse_duration(row[1]),
        )
        for row in rows
        if len(row) == 2
    ]


def gpus(partition: str | None = None) -> dict[str, tuple[int, int]]:
    """Return, for each type of GPU, the number of its nodes and the most that one of them has."""
    words = [f"--partition={partition}"] if partition else []
    rows = set(run("sinfo", "-h", "-N", "-o", "%N|%G", *words).stdout.splitlines())
    found = [pair for row in rows for pair in set(_GPUS.findall(row.partition("|")[2]))]
    return {
        kind: (sum(one == kind for one, _ in found), max(int(n) for k, n in found if k == kind))
        for kind in sorted({kind for kind, _ in found})
    }


def has_lost_nodes() -> bool:
    """Return whether nodes are down or drained: sbatch queues for them, --test-only refuses."""
    answer = run("sinfo", "--noheader", "--states=down,drain,maint,reserved", "--format=%D")
    return answer.returncode == 0 and bool(answer.stdout.strip())


def query_jobs(ids: Collection[str]) -> dict[str, SlurmJob]:
    """Return the jobs that Slurm still knows, by id. Works without accounting."""
    if not ids:
        return {}
    known = _queued(ids)
    left = [job for job in ids if job not in known]
    return known | {one.job: one for one in (accounted(left) if left else ())}


def _queued(ids: Collection[str]) -> dict[str, SlurmJob]:
    # Given a single job that it has forgotten, squeue fails; given two, it lists none.
    listed = ",".join([*dict.fromkeys(job.partition("_")[0] for job in ids), "1"])
    fields = "--format=%i|%T|%N|%L|%S|%r"
    answer = run("squeue", "-h", "--array", "--states=all", f"--jobs={listed}", fields)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise Refused(f"squeue fails: {answer.stderr.strip()}")
    rows = [line.split("|", 5) for line in answer.stdout.splitlines()]
    return {
        row[0]: SlurmJob(
            job=row[0],
            source="squeue",
            state=row[1],
            nodes=row[2],
            left_s=parse_duration(row[3]),
            started=parse_time(row[4]),
            reason="" if row[5] == "None" else row[5],
        )
        for row in rows
        if len(row) == 6
    }


def accounted(ids: Collection[str]) -> list[SlurmJob]:
    """Return the starts of jobs by accounting, those of a job oldest first; empty without it."""
    words = ("-n", "-X", "-D", f"--jobs={','.join(ids)}", "--parsable2")
    try:
        answer = run("sacct", *words, f"--format={','.join(_ACCOUNTED)}")
    except (ConfigError, Refused):
        return []
    rows = [line.split("|") for line in answer.stdout.splitlines()]
    return [
        SlurmJob(
            job=job,
            source="sacct",
            state=state.split()[0] if state else "",
            exit_code=code,
            started=parse_time(started),
            ended=parse_time(ended),
            limit_s=parse_duration(limit),
            reason="" if reason == "None" else reason,
            partition=partition,
            nodes=nodes.replace("None assigned", ""),
        )
        for job, state, code, started, ended, limit, reason, partition, nodes in (
            row for row in rows if answer.returncode == 0 and len(row) == len(_ACCOUNTED)
        )
    ]


def cancel(*jobs: str) -> None:
    """`scancel` jobs; one that has ended is not an error."""
    answer = run("scancel", *jobs)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise Refused(f"scancel {' '.join(jobs)}: {answer.stderr.strip()}")


def test_only(text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Let `sbatch --test-only` judge a batch script."""
    return run("sbatch", "--test-only", *flags, text=text)


def expected_start(text: str) -> float | None:
    """Return when a batch script would start by `sbatch --test-only`, None if it is refused."""
    found = re.search(r" to start at (\S+)", test_only(text).stderr)
    return parse_time(found[1]) if found else None


def run_on_node(*command: str, flags: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a job of its own on one node; give up after half an hour in the queue."""
    own = ("--quiet", "--immediate=1800", "--nodes=1", "--ntasks=1", "--time=10")
    return run("srun", *flags, *own, *command, timeout_s=None)


def submit_text(text: str, *flags: str) -> str:
    """Queue the text of a batch script; return the job's id, or raise `Refused`."""
    answer = run("sbatch", "--parsable", *flags, text=text)
    if answer.returncode:
        raise Refused(f"sbatch refuses the job: {answer.stderr.strip()}")
    return answer.stdout.strip().split(";")[0]


def sbatch(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str], umask: int
) -> str:
    """Run sbatch as a user types it in a folder, and return what it prints."""
    answer = run("sbatch", *words, text="", folder=folder, environment=environment, umask=umask)
    if answer.returncode:
        raise Refused(answer.stderr.strip())
    return (answer.stdout or answer.stderr).strip()


def show(*what: str) -> str:
    """Return what `scontrol show` prints, such as for `job 7 -o`; empty if it fails."""
    answer = run("scontrol", "show", *what)
    return answer.stdout if answer.returncode == 0 else ""


def shown_field(text: str, name: str) -> str:
    """Return the value of `NAME=value` or `NAME = value` in the output of `show`, or ""."""
    found = re.search(rf"(?:^|\s){name}(?:=| += )(\S*)", text, re.MULTILINE)
    return found[1] if found else ""


def parse_time(text: str) -> float | None:
    """Return seconds since 1970 of a local time such as `2026-03-01T10:00:00`."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def parse_duration(text: str) -> int | None:
    """Return the seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`; None for no limit."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is None:
        # Without days one or two numbers are minutes and seconds.
        parts = [0, *parts] if len(parts) < 3 else parts
    parts += [0] * (3 - len(parts))
    hours, minutes, rest = parts
    return int(match["days"] or 0) * 86400 + hours * 3600 + minutes * 60 + rest


def format_duration(length_s: float) -> str:
    """Return `H:M:S`, rounded up to a minute, the resolution of Slurm's limits."""
    minutes = max(1, math.ceil(length_s / 60 - 1e-6))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
