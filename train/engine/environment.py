"""Facts about the machine for the manifest, from an allow-list: never the whole environment."""

import os
import platform
import socket
from typing import Any

import numpy as np
import torch

from configs.run.slurm_env import node_name
from train.engine.distributed import Ranks, to_rank_0


def placement(ranks: Ranks) -> list[object] | None:
    """Return the `rank_placement` of every rank, in order, on rank 0; None on the others."""
    return to_rank_0(rank_placement(ranks))


def rank_placement(ranks: Ranks) -> dict[str, Any]:
    """Return the node, address and device of this rank."""
    facts: dict[str, Any] = {"rank": ranks.rank, "node": node_name(), "host": socket.gethostname()}
    facts["local_rank"] = ranks.local_rank
    facts["threads"] = torch.get_num_threads()
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        facts["visible_gpus"] = os.environ["CUDA_VISIBLE_DEVICES"]
    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        facts["gpu"] = properties.name
        facts["gpu_memory_gb"] = round(properties.total_memory / 1e9, 3)
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
    return found


def cpu_model() -> str:
    """Return the name of the processor, as the kernel reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return lines[0].partition(":")[2].strip() if lines else platform.processor()
