"""The placement of an attempt: its node and its GPUs."""

import contextlib
import os
import subprocess
from typing import Any

from runs.slurm_env import node_name


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
