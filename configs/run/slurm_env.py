"""The facts that Slurm sets in the environment of a job: ids, restarts, the node.

Outside `launch` no other module reads `SLURM_*`.
"""

import os
import socket
from typing import Any


def is_restarted() -> bool:
    """Return whether Slurm requeued this job after an earlier start."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0


def batch_job() -> str | None:
    """Return the id of the batch job whose script runs this process; None in salloc or outside."""
    if os.environ.get("ENVIRONMENT") != "BATCH":
        return None
    return os.environ.get("SLURM_JOB_ID")


def array_row() -> int | None:
    """Return the row of cells.tsv of this array task, which counts from `FIRST_CELL`."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    return None if task is None else int(os.environ.get("FIRST_CELL") or 0) + int(task)


def job_facts() -> dict[str, Any]:
    """Return the facts about this job that a manifest may hold; empty outside Slurm."""
    names = {
        "job": "SLURM_JOB_ID",
        "array_job": "SLURM_ARRAY_JOB_ID",
        "array_task": "SLURM_ARRAY_TASK_ID",
        "restarts": "SLURM_RESTART_COUNT",
        "partition": "SLURM_JOB_PARTITION",
        "cluster": "SLURM_CLUSTER_NAME",
        "nodelist": "SLURM_JOB_NODELIST",
    }
    facts = {name: os.environ.get(variable) for name, variable in names.items()}
    return {name: fact for name, fact in facts.items() if fact is not None}


def node_name() -> str:
    """Return the name of this node as Slurm knows it, or the host name outside Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
