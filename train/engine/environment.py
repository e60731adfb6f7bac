"""What the manifest tells of where a run ran, allow-listed: never the environment."""

import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from configs.checks.batch import BatchLayout
from configs.run.slurm_env import node_name
from configs.schema import Pretrain
from train.engine.distributed import Ranks, to_rank_0
from train.model.build import network_macs
from train.model.flops import recomputed_macs, tokens, training_flops
from train.model.parallelize import DTYPES, is_sharded


def placement(ranks: Ranks) -> list[object] | None:
    """Node, address and device of every rank, in order, on rank 0; None elsewhere."""
    return to_rank_0(place(ranks))


def place(ranks: Ranks) -> dict[str, Any]:
    """Node, address and device of this rank."""
    cuda = ranks.device.type == "cuda"
    mine: dict[str, Any] = {"rank": ranks.rank, "node": node_name(), "host": socket.gethostname()}
    mine["local_rank"] = ranks.local_rank
    mine["threads"] = torch.get_num_threads()
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        mine["visible_gpus"] = os.environ["CUDA_VISIBLE_DEVICES"]
    if cuda:
        properties = torch.cuda.get_device_properties(ranks.device)
        mine["gpu"] = properties.name
        mine["gpu_memory_gb"] = round(properties.total_memory / 1e9, 3)
    else:
        mine["cpu"] = cpu_model()
    return mine


def versions() -> dict[str, str]:
    """Versions of what the arithmetic depends on."""
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


def arithmetic(config: Pretrain, layout: BatchLayout) -> dict[str, str]:
    """Element types of what is kept, computed and sent, which no layout changes but `gather`."""
    compute = str(DTYPES[config.train.precision]).removeprefix("torch.")
    kept = ("parameters", "gradients", "optimizer", "average", "reduction")
    types = dict.fromkeys(kept, "float32") | {"compute": compute}
    if is_sharded(layout):
        types["gather"] = compute
    return types


def training_facts(
    config: Pretrain, layout: BatchLayout, network: torch.nn.Module
) -> Mapping[str, Any]:
    """Sizes that rates are computed with."""
    macs = network_macs(config)
    facts: dict[str, Any] = {}
    if config.model.family == "dit":
        facts["recomputed_macs_per_image"] = recomputed_macs(config)
        facts["tokens_per_image"] = tokens(config)
    return facts | {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "macs_per_image": macs,
        "training_flops_per_image": training_flops(macs),
        "ranks": layout.world,
        "replicate": layout.replicate,
        "shard": layout.shard,
        "tensor": layout.tensor,
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "dtypes": arithmetic(config, layout),
        "versions": versions(),
    }


def cpu_model() -> str:
    """The processor as the kernel names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return lines[0].partition(":")[2].strip() if lines else platform.processor()
