"""The cost of runs in GPU-hours and energy."""

from typing import Any

from analysis.gpus.energy import energy
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, placement, ranks
from analysis.read.run_log import RunLog


def cost_row(log: RunLog) -> dict[str, Any]:
    """Return the row of a run; unknown values are None.

    If attempts had GPUs of several models, `gpu` names each with its hours. `useful` is the share
    of the allocated time in training steps, `energy_share` the share of the GPU time that the
    readings of energy cover.
    """
    breakdown, spent = time_breakdown(log), energy(log)
    # Ranks that are recorded without a GPU had none.
    device_s = {
        model: seconds
        for model, seconds in (breakdown.device_s if breakdown else {}).items()
        if model or not placement(log.facts)
    }
    gpu_s = sum(device_s.values())
    hours = [f"{model} ({seconds / 3600:.3g} h)" for model, seconds in device_s.items()]
    is_one_count = len({stay.ranks for stay in log.stays.values()}) < 2
    allocated_s = breakdown.allocated_s if breakdown else 0.0
    # Other programs record no clock of their training steps.
    train_s = breakdown.seconds.get("train") if breakdown and "train_s" in log.values else None
    return {
        "run": log.name,
        "gpu": " + ".join(hours) if hours[1:] else gpu(log.facts),
        "gpus": ranks(log.facts) if device_s and is_one_count else None,
        "minutes": breakdown.wall_s / 60 if breakdown else None,
        "gpu_hours": gpu_s / 3600 if gpu_s > 0 else None,
        "useful": train_s / allocated_s if train_s is not None and allocated_s else None,
        "energy_kwh": spent.kwh if spent else None,
        "energy_by": spent.measured_by if spent else None,
        "energy_share": min(1.0, spent.covered_s / gpu_s) if spent and gpu_s > 0 else None,
    }
