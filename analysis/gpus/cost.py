"""The cost of runs in GPU-hours and energy."""

from typing import Any

from analysis.gpus.load import gpu_logs
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import gpu, placement, ranks
from analysis.read.run_log import RunLog

JOULES_PER_KWH = 3.6e6


def cost_row(log: RunLog) -> dict[str, Any]:
    """Return the row of a run; unknown values are None.

    If attempts had GPUs of several models, `gpu` names each with its hours. `useful` is the share
    of the allocated time in training steps, `energy_share` the share of the GPU time that the
    readings of energy cover.
    """
    breakdown = time_breakdown(log)
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
        "minutes": allocated_s / 60 or None,
        "gpu_hours": gpu_s / 3600 if gpu_s > 0 else None,
        "useful": train_s / allocated_s if train_s is not None and allocated_s else None,
        **_energy(log, gpu_s=gpu_s),
    }


def _energy(log: RunLog, *, gpu_s: float) -> dict[str, Any]:
    """Return the energy of all GPUs and attempts as fields of a row, None without readings.

    It is the increase of the driver's counter, also over rows without a reading. Power times time
    stands for it in a row in which the GPU has no counter, or in which the counter began again.
    """
    joules, covered_s, by, cards = 0.0, 0.0, set[str](), set[str]()
    for card in (card for own in gpu_logs(log).values() for card in own):
        before, since_s = card.facts.get("energy_j"), 0.0
        for row in card.rows:
            after, power_w = row.get("energy_j"), row.get("power_w")
            since_s += row["span_s"]
            if after is None and power_w is None:
                continue
            if before is not None and after is not None and after >= before:
                joules, by = joules + after - before, by | {"counter"}
                covered_s += since_s
            elif power_w is not None:
                joules, by = joules + power_w * row["span_s"], by | {"power"}
                covered_s += row["span_s"]
            before, since_s = after, 0.0
        cards |= {f" of whole cards ({card.whole_card})"} if card.whole_card else set()
    measured_by = f"NVML {' and '.join(sorted(by))}{','.join(sorted(cards))}"
    return {
        "energy_kwh": joules / JOULES_PER_KWH if by else None,
        "energy_by": measured_by if by else None,
        "energy_share": min(1.0, covered_s / gpu_s) if by and gpu_s > 0 else None,
    }
