"""The cost of runs in GPU-hours."""

from typing import Any

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, placement, ranks
from analysis.read.run_log import RunLog


def cost_row(log: RunLog) -> dict[str, Any]:
    """Return the row of a run; unknown values are None."""
    breakdown, model, count = time_breakdown(log), gpu(log.facts), ranks(log.facts)
    if model is None and placement(log.facts):
        count = None  # the ranks had no GPU
    allocated_s = breakdown.allocated_s if breakdown else 0.0
    device_s = breakdown.device_s if breakdown and count else None
    train_s = breakdown.seconds.get("train") if breakdown else None
    return {
        "run": log.name,
        "gpu": model,
        "gpus": count,
        "minutes": breakdown.wall_s / 60 if breakdown else None,
        "gpu_hours": device_s / 3600 if device_s else None,
        "useful": train_s / allocated_s if train_s is not None and allocated_s else None,
    }
