"""Check by forecast that a run fits into the memory of its GPU."""

from collections.abc import Iterator

from configs.schema import Pretrain
from launch import forecast
from launch.forecast import ForecastAnswer
from launch.preflight.check import CheckResult, failure, passed, warning
from launch.submit.script import RunRequest


def forecast_of(request: RunRequest) -> ForecastAnswer:
    """Return the forecast of the run."""
    if not isinstance(request.config, Pretrain):
        return ForecastAnswer(remark=f"kind {request.config.kind}")
    yaml = request.resumes.config_file if request.resumes else request.source
    return forecast.ask([(yaml, request.overrides)])[0]


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
