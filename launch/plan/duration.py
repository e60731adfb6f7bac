"""How long a run takes by its forecast, and the time limit that follows (`resources.hours: auto`).

Beside the steps, some things are stated, not derived: the start takes 3 minutes, a save 5 s and its
bytes at 0.3 GB/s if no earlier run of the model measured it, samples and evaluations 10 % of the
steps.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from configs.errors import ConfigError
from configs.load import flatten, to_tree
from launch.plan.memory import forecast_of
from launch.plan.signal_lead import measured_saves
from launch.slurm import client, limits
from launch.slurm.client import NoSlurm
from launch.slurm.flags import Flags
from launch.submit.script import RunRequest, batch_script
from runs.records import saves

_START_S, _SAVE_S, _SHARE = 180.0, 5.0, 1.1
# Of a parameter: the weight, its average and two moments; on a shared file system under load.
_SAVED_BYTES, _BYTES_PER_S = 16, 0.3e9
# The warning before the limit, and the steps that make a start worth while.
_LEAD_S, _USEFUL_S = 180.0, 300.0


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds that a run still takes, between the ends of its forecast, and the least useful."""

    value: float
    low: float
    high: float
    least: float


def duration(request: RunRequest) -> Duration | None:
    """Return how long a request with a forecast takes, None if it is not known."""
    gpu = request.forecast or {}
    step: dict[str, float] | None = gpu.get("step_s")
    if not step:
        return None
    records = request.resumes.records() if request.resumes else ()
    done = [save["step"] for save in saves(records)]
    steps = max(0, request.config.last_step() - (done[-1] if done else 0))
    measured = measured_saves(request)
    save_s = _SAVE_S + (gpu.get("parameters") or 0) * _SAVED_BYTES / _BYTES_PER_S
    save_s = measured.save_s if measured else save_s
    # Every kind of run with a forecast has this key.
    count = steps // flatten(to_tree(request.config))["checkpoint.every"] + 1
    fixed, least = _START_S + count * save_s, _START_S + _LEAD_S + 2 * save_s + _USEFUL_S
    ends = {name: fixed + _SHARE * steps * step[name] for name in ("value", "low", "high")}
    return Duration(**ends, least=least)


def with_hours(request: RunRequest) -> RunRequest:
    """Return the request with a number in place of `resources.hours: auto`.

    It covers the upper end of the interval. A job that is requeued at its limit takes at most what
    the partition allows, and also less (`--time-min`), down to the least useful time.
    """
    resources = request.config.resources
    if resources.hours != "auto":
        return request
    if request.forecast is None and resources.gpu and resources.gpus_per_node:
        request = replace(request, forecast=forecast_of(request).gpu())
    found = duration(request)
    if found is None:
        raise ConfigError(
            "resources.hours: auto needs a forecast of the run on its GPU: name resources.gpu, "
            "on which it fits, or set a number of hours"
        )
    limit_s = _rounded(found.high)
    flags: Flags = batch_script(_limited(request, limit_s), request.run).flags
    if "requeue" not in flags or "no-requeue" in flags:
        return _limited(request, limit_s)
    with suppress(NoSlurm):
        limit_s = min(limit_s, limits.longest_s(flags) or limit_s)
    own: Flags = {"time-min": client.format_duration(_rounded(found.least))}
    own = own if _rounded(found.least) < limit_s else {}
    return replace(_limited(request, limit_s), flags=own | request.flags)


def _rounded(length_s: float) -> int:
    return math.ceil(length_s / 600) * 600


def _limited(request: RunRequest, limit_s: int) -> RunRequest:
    hours = limit_s / 3600
    resources = request.config.resources.model_copy(update={"hours": hours})
    config = request.config.model_copy(update={"resources": resources})
    own = [f"resources.hours={hours!r}"] if request.resumes else []
    return replace(request, config=config, overrides=[*request.overrides, *own])
