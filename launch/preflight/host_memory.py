"""Check that a node has the host memory that its ranks need beside the memory of the GPUs."""

import math
from collections.abc import Iterator
from pathlib import Path

from configs.schema import Pretrain
from launch.forecast import ForecastAnswer
from launch.preflight.check import GIB, CheckResult, failure, passed, warning
from launch.preflight.storage import checkpoint_bytes
from launch.submit.script import RunRequest

# A rank with the libraries of CUDA, and its data workers. Assumed, not measured.
_PROCESS = 3 * GIB
# Files of runs and seed checkpoints, which ranks read in parts; other weights are read whole.
_IN_PARTS = ("config.yaml", "seed.yaml")


def host_memory(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check the weights that are read at the start, and what an asynchronous save stages."""
    config, resources = request.config, request.config.resources
    ranks = resources.gpus_per_node
    if not isinstance(config, Pretrain) or not ranks or forecast.parameters is None:
        return
    source, start, save = config.model.init_from, 0.0, 0.0
    if source and not any(Path(source, name).is_file() for name in _IN_PARTS):
        start = 4.0 * forecast.parameters * ranks
    if config.checkpoint.asynchronous:
        save = checkpoint_bytes(config, forecast.parameters) / resources.nodes
    need = max(start, save) + ranks * _PROCESS
    message = (
        f"{resources.memory_gb or 'the default'} of {math.ceil(need / GIB)} GiB per node: "
        f"{start / GIB:.0f} to read weights or {save / GIB:.0f} to stage a save, and "
        f"{_PROCESS // GIB} for each process (assumed)"
    )
    requested = math.inf if resources.memory_gb is None else resources.memory_gb * GIB
    if requested >= need:
        yield passed("host memory", message)
        return
    fix = f"resources.memory_gb={math.ceil(need / GIB)}"
    if save > start:
        fix += ", or checkpoint.asynchronous=false"
    yield (failure if requested < max(start, save) else warning)("host memory", message, fix)
