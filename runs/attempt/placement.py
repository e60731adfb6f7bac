"""The placement of an attempt: its node and its GPUs."""

import contextlib
import os
import subprocess
from typing import Any

from runs.slurm_env import node_count, node_name


def placement() -> list[dict[str, Any]]:
    """Return an entry per GPU of this node, or one for its processors."""
    place = {"node": node_name(), "threads": len(os.sched_getaffinity(0))}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    gpus: list[dict[str, Any]] = []
    # A driver without GPUs prints a sentence instead of rows.
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        found = subprocess.run(
            query + ([f"--id={visible}"] if visible else []),
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout.splitlines()  # fmt: skip
        pairs = [line.rpartition(", ") for line in found if visible != ""]
        gpus = [
            {"gpu": name, "gpu_memory_gb": round(float(mib) * 2**20 / 1e9, 3)}
            for name, _, mib in pairs
        ]
    return [{"rank": rank} | place | gpu for rank, gpu in enumerate(gpus)] or [{"rank": 0} | place]


def ranks_of(placed: list[dict[str, Any]]) -> int | None:
    """Return the GPUs of a job, or its nodes if they have none, as many on each as on this one.

    Return None outside Slurm if the node has several, of which nothing says how many are used.
    """
    nodes = node_count()
    if nodes is None and len(placed) > 1 and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return None
    return len(placed) * (nodes or 1)
