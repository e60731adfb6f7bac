"""How long a run takes by its forecast.

Beside the steps, some things are stated, not derived: the start takes 3 minutes, a save 5 s and its
bytes at 0.3 GB/s if no earlier run of the model measured it, samples and evaluations 10 % of the
steps.
"""

from dataclasses import dataclass

from configs.load import flatten, to_tree
from launch.plan.signal_lead import measured_saves
from launch.submit.script import RunRequest
from runs.records import saves

_START_S, _SAVE_S, _SHARE = 180.0, 5.0, 1.1
# Of a parameter: the weight, its average and two moments; on a shared file system under load.
_SAVED_BYTES, _BYTES_PER_S = 16, 0.3e9


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds that a run still takes, between the ends of its forecast."""

    value: float
    low: float
    high: float


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
    fixed = _START_S + count * save_s
    ends = {name: fixed + _SHARE * steps * step[name] for name in ("value", "low", "high")}
    return Duration(**ends)
