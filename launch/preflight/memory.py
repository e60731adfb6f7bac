"""Check by forecast that a run fits into the memory of its GPU and of its nodes."""

import math
from collections.abc import Iterator
from pathlib import Path

from configs.schema import Finetune, Pretrain
from launch import forecast
from launch.forecast import ForecastAnswer
from launch.preflight.check import GIB, CheckResult, failure, passed, warning
from launch.preflight.storage import checkpoint_bytes
from launch.submit.script import RunRequest
from runs.folder import is_run

# The host memory of a rank with the libraries of CUDA, and of its data workers. Assumed.
_PROCESS = 3 * GIB


def forecast_of(request: RunRequest) -> ForecastAnswer:
    """Return the forecast of the run."""
    if not isinstance(request.config, Pretrain | Finetune):
        return ForecastAnswer(remark=f"kind {request.config.kind}")
    return forecast.ask([request.query])[0]


def gpu_memory(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that the run fits into the memory of its GPU."""
    if request.config.resources.gpus_per_node == 0:
        yield passed("gpu memory", "no GPU is requested")
        return
    if not forecast.gpus:
        yield warning("gpu memory", f"unknown: {forecast.remark}")
        return
    fits = [name for name, gpu in forecast.gpus.items() if gpu["fits"]]
    too_small = {name: gpu for name, gpu in forecast.gpus.items() if not gpu["fits"]}
    if not too_small:
        name, gpu = next(iter(forecast.gpus.items()))
        total, capacity = gpu["gib"]["total"], gpu["capacity_gib"]
        yield passed("gpu memory", f"{total:.1f} of {capacity:.0f} GiB of {name}, by forecast")
        return
    _, gpu = next(iter(too_small.items()))
    message = f"does not fit on {', '.join(too_small)}: {gpu['reason']}"
    if fits:
        fix = f"set resources.gpu to one of {', '.join(fits)}, or {gpu['fix']}"
        yield warning("gpu memory", message, fix)
    else:
        yield failure("gpu memory", message, str(gpu["fix"]))


def hours(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Warn if the steps and samples of a LoRA take longer than the hours that are asked for."""
    asked = request.config.resources.hours
    known = {name: gpu["hours"] for name, gpu in forecast.gpus.items() if "hours" in gpu}
    for name, need in known.items():
        message = f"about {need:.2g} of {asked:g} hours on {name}, by forecast"
        fix = f"resources.hours={math.ceil(1.5 * need)}"
        yield passed("time", message) if need < asked else warning("time", message, fix)


def host_memory(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that a node holds what its ranks read at the start or stage for a save."""
    config, resources = request.config, request.config.resources
    ranks = resources.gpus_per_node
    if not isinstance(config, Pretrain) or not ranks or forecast.parameters is None:
        return
    source, held = config.model.init_from, 0.0
    # Of a run each rank reads its part, of other weights all.
    if source and not is_run(Path(source)):
        held = 4.0 * forecast.parameters * ranks
    if config.checkpoint.asynchronous:
        held = max(held, checkpoint_bytes(config, forecast.parameters) / resources.nodes)
    need, requested = math.ceil((held + ranks * _PROCESS) / GIB), resources.memory_gb
    message = f"{requested or 'the default'} of {need} GiB, {ranks} processes of 3 GiB assumed"
    if requested is None or requested >= need:
        yield passed("host memory", message)
    else:
        level = failure if requested * GIB < held else warning
        yield level("host memory", message, f"resources.memory_gb={need}")
