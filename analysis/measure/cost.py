"""The cost of runs: GPU-hours, and money by a file of rates."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, ranks
from analysis.read.run_log import RunLog
from configs.gpus import rate_of


def cost_rows(logs: Sequence[RunLog], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return a row per run; unknown values are None.

    `front` marks the runs than which no other is both faster and cheaper (without rates, in
    GPU-hours).
    """
    rows = [_row(log, rates) for log in logs]
    cost = "money" if rates else "gpu_hours"
    front = _front([(row["minutes"], row[cost]) for row in rows])
    return [row | {"front": "front" if n in front else None} for n, row in enumerate(rows)]


def _row(log: RunLog, rates: Mapping[str, float]) -> dict[str, Any]:
    breakdown, model, count = time_breakdown(log), gpu(log.facts), ranks(log.facts)
    rate, images = rate_of(model, rates), log.last("images")
    # GPUs times the hours for which the run had them.
    hours = count * breakdown.allocated_s / 3600 if breakdown and count else None
    money = rate * hours if rate and hours else None
    return {
        "run": log.name,
        "gpu": model,
        "gpus": count,
        "minutes": breakdown.wall_s / 60 if breakdown else None,
        "gpu_hours": hours,
        "money": money,
        "money_per_million_images": money / images * 1e6 if money and images else None,
    }


def _front(points: Sequence[tuple[float | None, float | None]]) -> set[int]:
    """Return the points that no other beats in one coordinate without losing in the other."""
    known = [(t, c, i) for i, (t, c) in enumerate(points) if t is not None and c is not None]
    return {
        i
        for t, c, i in known
        if not any(s <= t and d <= c and (s < t or d < c) for s, d, _ in known)
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
