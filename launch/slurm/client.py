"""What Slurm's own commands say of partitions and jobs. Fixed fields, never --json.

Jobs go by `7`, tasks of an array by `7_3`.
"""

import os
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

from configs.errors import ConfigError
from launch.slurm import duration

# States in which Slurm is done with a job.
ENDED = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED",
        "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    )
)  # fmt: skip

# Slurm's default of MaxArraySize, which no index of a task may reach.
_ARRAY_SIZE = 1001

_PREFIXES = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SLURM_")


class Refused(Exception):
    """The cluster does not do what was asked; the message says why, and the mend."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition and what a job in it may ask for; None is no limit."""

    name: str
    is_default: bool
    most_seconds: int | None
    most_nodes: int | None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the queue, or else the accounting, knows it."""

    state: str
    nodes: str
    reason: str

    @property
    def has_ended(self) -> bool:
        """Whether Slurm is done with it."""
        return self.state in ENDED


def misleading_variables() -> list[str]:
    """Variables that override `#SBATCH` lines, filter answers, or are an outer job's own."""
    found = [name for name in os.environ if name.startswith(_PREFIXES) and name != "SLURM_CONF"]
    return sorted(found) + (["ENVIRONMENT"] if os.environ.get("ENVIRONMENT") == "BATCH" else [])


def run(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands; `ConfigError` where there is no Slurm."""
    hidden = misleading_variables()
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    try:
        return subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, timeout=120
        )
    except FileNotFoundError:
        raise ConfigError(
            f"no {command[0]} here: submit from a machine with Slurm, or run it here with --local"
        ) from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{command[0]} has no answer after 2 minutes; try again later") from None


def partitions() -> list[Partition]:
    """The cluster's partitions."""
    answer = run("sinfo", "--noheader", "--format=%P|%l|%s")
    if answer.returncode:
        raise Refused(f"sinfo does not answer: {answer.stderr.strip()}")
    rows = dict.fromkeys(line for line in answer.stdout.splitlines() if line.count("|") == 2)
    return [_partition(*row.split("|")) for row in rows]


def _partition(name: str, time: str, nodes: str) -> Partition:
    most = nodes.rpartition("-")[2]
    return Partition(
        name=name.removesuffix("*"),
        is_default=name.endswith("*"),
        most_seconds=duration.seconds(time),
        most_nodes=int(most) if most.isdigit() else None,
    )


def has_lost_nodes() -> bool:
    """Whether some nodes are down or drained, for which sbatch queues and --test-only refuses."""
    answer = run("sinfo", "--noheader", "--states=down,drain,maint,reserved", "--format=%D")
    return answer.returncode == 0 and bool(answer.stdout.strip())


def jobs(ids: Collection[str]) -> dict[str, Job]:
    """What Slurm knows of these jobs; one that it forgot is absent. Works without accounting."""
    if not ids:
        return {}
    known = _queued(ids)
    return known | _accounted([job for job in ids if job not in known])


def _queued(ids: Collection[str]) -> dict[str, Job]:
    # Asked for one job alone, squeue takes one that it forgot for an error.
    listed = ",".join([*dict.fromkeys(job.partition("_")[0] for job in ids), "1"])
    fields = "--format=%i|%T|%N|%r"
    answer = run("squeue", "-h", "--array", "--states=all", f"--jobs={listed}", fields)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise Refused(f"squeue does not answer: {answer.stderr.strip()}")
    rows = [line.split("|", 3) for line in answer.stdout.splitlines()]
    return {
        row[0]: Job(state=row[1], nodes=row[2], reason="" if row[3] == "None" else row[3])
        for row in rows
        if len(row) == 4
    }


def _accounted(ids: Collection[str]) -> dict[str, Job]:
    if not ids:
        return {}
    fields = "--format=JobID,State,NodeList"
    try:
        answer = run("sacct", "-n", "-X", "--parsable2", f"--jobs={','.join(ids)}", fields)
    except (ConfigError, Refused):
        return {}
    rows = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") == 2]
    return {
        job: Job(state=state.split()[0], nodes=nodes.replace("None assigned", ""), reason="")
        for job, state, nodes in rows
    }


def cancel(*jobs: str) -> None:
    """`scancel` jobs; one that has ended already is none to complain about."""
    answer = run("scancel", *jobs)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise Refused(f"scancel {' '.join(jobs)}: {answer.stderr.strip()}")


def array_size() -> int:
    """The number of tasks that an array may have at most."""
    try:
        answer = run("scontrol", "show", "config")
    except ConfigError:
        return _ARRAY_SIZE
    found = re.search(r"^MaxArraySize *= *([0-9]+)", answer.stdout, re.MULTILINE)
    return int(found[1]) if found else _ARRAY_SIZE
