"""Check by forecast that a run fits into the memory of its GPU and into its hours."""

import math
from collections.abc import Iterator
from typing import Any

from configs.schema import Pretrain, Run
from configs.schema.training import Resources
from configs.table import Row
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.plan.result import CheckResult, failure, passed, warning


def forecast_of(config: Run) -> ForecastAnswer:
    """Return the forecast of a run."""
    if not isinstance(config, Pretrain):
        return ForecastAnswer(remark=f"only pretraining is forecast, not kind {config.kind}")
    return forecast.ask([config])[0]


def checks(resources: Resources, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check by its forecast the memory and the hours of a run."""
    yield gpu_memory(resources, forecast)
    yield from hours(resources, forecast)


def gpu_memory(resources: Resources, forecast: ForecastAnswer) -> CheckResult:
    """Check that a run fits into the memory of its GPU."""
    if resources.gpus_per_node == 0:
        return passed("gpu memory", "no GPU is requested")
    if not forecast.gpus:
        return warning("gpu memory", f"unknown: {forecast.remark}")
    too_large = forecast.too_large()
    if too_large:
        reason, _, fix = too_large.partition("; would fit: ")
        return failure("gpu memory", f"does not fit: {reason}", fix)
    fits = [name for name, gpu in forecast.gpus.items() if gpu["fits"]]
    too_small = {name: gpu for name, gpu in forecast.gpus.items() if not gpu["fits"]}
    if not too_small:
        name, gpu = next(iter(forecast.gpus.items()))
        total, capacity = gpu["gib"]["total"], gpu["capacity_gib"]
        return passed("gpu memory", f"{total:.1f} of {capacity:.0f} GiB of {name}, by forecast")
    _, gpu = next(iter(too_small.items()))
    message = f"does not fit on {', '.join(too_small)}: {gpu['reason']}"
    other = f"set resources.gpu to one of {', '.join(fits)}, or " if fits else ""
    return warning("gpu memory", message, f"{other}{gpu['fix']}")


def fit_row(name: str, gpu: dict[str, Any]) -> Row:
    """Return the row of a type of GPU: a rank's memory and micro batch, a step, all steps."""
    step = gpu.get("step_s") or {}
    return {
        "GPU": name,
        "GiB": f"{gpu['gib']['total']:.1f}",
        "of": f"{gpu['capacity_gib']:.0f}",
        "micro batch": gpu["micro_batch"],
        "s/step": step and f"{step['value']:.2g}",
        "hours": gpu.get("hours") and f"{gpu['hours']:.2g}",
        "by": step.get("source"),
        "fits": "yes" if gpu["fits"] else f"{gpu['reason']}; would fit: {gpu['fix']}",
    }


def hours(resources: Resources, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Warn if the steps alone take longer than the hours that are asked for, at the least."""
    asked = resources.hours
    for name, gpu in forecast.gpus.items():
        step = gpu.get("step_s")
        need = (gpu.get("hours") or 0.0) * step["low"] / step["value"] if step else 0.0
        if step and need > asked:
            message = f"at least {need:.2g} of {asked:g} hours on {name}; {step['source']}"
            yield warning("time", message, f"resources.hours={math.ceil(1.5 * need)}")
