"""Facts about the machine for the manifest, from an allow-list: never the whole environment."""

import contextlib
import importlib.util
import platform
import socket
import subprocess
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from configs.checks.compute_node import nvidia_driver
from runs.slurm_env import node_name
from train.engine.distributed import Ranks, from_every_rank

_NVIDIA_SMI_S = 20.0


def placement(ranks: Ranks) -> list[object] | None:
    """Return the `rank_placement` of every rank, in order, on rank 0; None on the others."""
    places = from_every_rank(rank_placement(ranks))
    return None if ranks.rank else places


def rank_placement(ranks: Ranks) -> dict[str, Any]:
    """Return the node, address and device of this rank."""
    facts: dict[str, Any] = {"rank": ranks.rank, "node": node_name(), "host": socket.gethostname()}
    facts["threads"] = torch.get_num_threads()
    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        facts["gpu"] = properties.name
        facts["gpu_memory_gb"] = round(properties.total_memory / 1e9, 3)
        if limit_w := power_limit_w(str(properties.uuid)):
            facts["power_limit_w"] = limit_w
    else:
        facts["cpu"] = cpu_model()
    return facts


def versions() -> dict[str, str]:
    """Return the versions of everything that the arithmetic depends on."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["driver"] = nvidia_driver() or "unknown"
        if importlib.util.find_spec("triton"):
            found["triton"] = version("triton")
    return found


def power_limit_w(uuid: str) -> float | None:
    """Return the power limit of a GPU by nvidia-smi, None if it cannot tell."""
    command = ["nvidia-smi", "--query-gpu=power.limit", f"--id=GPU-{uuid}"]
    # Without a limit it prints "[N/A]".
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        answer = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=_NVIDIA_SMI_S,
        )  # fmt: skip
        return float(answer.stdout)
    return None


def cpu_model() -> str:
    """Return the name of the processor, as the kernel reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return lines[0].partition(":")[2].strip() if lines else platform.processor()
