"""The cost of runs in GPU-hours."""

from typing import Any

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog


def cost_row(log: RunLog) -> dict[str, Any]:
    """Return the row of a run; unknown values are None."""
    breakdown, model, count = time_breakdown(log), gpu(log.facts), ranks(log.facts)
    # GPUs times the hours for which the run had them.
    hours = count * breakdown.allocated_s / 3600 if breakdown and count else None
    return {
        "run": log.name,
        "gpu": model,
        "gpus": count,
        "minutes": breakdown.wall_s / 60 if breakdown else None,
        "gpu_hours": hours,
    }


def hours_row(log: RunLog) -> dict[str, Any] | None:
    """Return a run's hours by purpose; all but `queue` and `hold` sum to `allocated`."""
    breakdown = time_breakdown(log)
    if breakdown is None or not breakdown.seconds:
        return None
    hours = {name: seconds / 3600 for name, seconds in breakdown.seconds.items()}
    hold = hours.pop("between")
    allocated = breakdown.allocated_s / 3600
    return {
        "run": log.name,
        "allocated_h": allocated,
        "useful": hours["train"] / allocated if allocated else None,
        **{f"{name}_h": value for name, value in hours.items() if value},
        **({"hold_h": hold} if hold else {}),
    }
