"""The facts that Slurm sets in the environment of a job: ids, restarts, the node.

Outside `launch` no other module reads `SLURM_*`.
"""

import os
import re
import socket
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.files import read_bytes


def _number(variable: str) -> str | None:
    """Return a number in the environment as text: ids become names of folders."""
    text = os.environ.get(variable) or None
    if text is not None and not re.fullmatch("[0-9]{1,18}", text):
        raise ConfigError(f"{variable}={text!r}: not a number, as Slurm sets it; unset it")
    return text


def is_restarted() -> bool:
    """Return whether Slurm requeued this job after an earlier start."""
    return int(_number("SLURM_RESTART_COUNT") or 0) > 0


def batch_job() -> str | None:
    """Return the id of the batch job whose script runs this process; None in salloc or outside."""
    return _number("SLURM_JOB_ID") if os.environ.get("ENVIRONMENT") == "BATCH" else None


def job_facts() -> dict[str, Any]:
    """Return the facts about this job that a manifest may hold; empty outside Slurm."""
    facts = {
        "job": _number("SLURM_JOB_ID"),
        "restarts": _number("SLURM_RESTART_COUNT"),
        "partition": os.environ.get("SLURM_JOB_PARTITION"),
        "cluster": os.environ.get("SLURM_CLUSTER_NAME"),
        "nodelist": os.environ.get("SLURM_JOB_NODELIST"),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def node_count() -> int | None:
    """Return the number of nodes of this job; None outside Slurm."""
    count = _number("SLURM_JOB_NUM_NODES")
    return int(count) if count and _number("SLURM_JOB_ID") else None


def has_gpus() -> bool | None:
    """Return whether Slurm gave this job GPUs on this node; None outside Slurm."""
    if _number("SLURM_JOB_ID") is None:
        return None
    # The one-machine Slurm (env/slurm) has GPUs in name only.
    in_name_only = os.environ.get("SLURM_CLUSTER_NAME") == "onemachine"
    return bool(os.environ.get("SLURM_GPUS_ON_NODE")) and not in_name_only


def node_name() -> str:
    """Return the name of this node as Slurm knows it, or the host name outside Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def first_environment() -> dict[str, str]:
    """Return the variables that this process got; Python adds LC_CTYPE if no locale is set."""
    pairs = read_bytes(Path("/proc/self/environ")).split(b"\0")
    found = (os.fsdecode(pair).partition("=") for pair in pairs)
    return {name: value for name, equals, value in found if equals}
