"""The energy of a run's GPUs, from the readings of the sampler of each node."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.time_breakdown import time_breakdown
from analysis.measure.time_to_target import Target, time_to_target
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.run.folder import RunFolder
from configs.run.gpu_log import read_gpu_logs

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of all GPUs and attempts, who measured it, and the GPU-seconds it covers."""

    kwh: float
    measured_by: str
    covered_s: float


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The energy of one GPU in a span that ends at `time` (since 1970), and what measured it."""

    time: float
    joules: float
    covered_s: float
    by: str


def _readings(log: RunLog) -> Iterator[_Reading]:
    run = RunFolder(log.path)
    for gpu in [one for number in run.attempts() for one in read_gpu_logs(run.attempt(number))]:
        before = gpu.facts.get("energy_j")
        for row in gpu.rows:
            after, power_w = row.get("energy_j"), row.get("power_w")
            joules, by = (power_w or 0.0) * row["span_s"], "" if power_w is None else "power"
            if before is not None and after is not None and after >= before:
                joules, by = after - before, "counter"
            before = after
            covered_s = row["span_s"] if after is not None or power_w is not None else 0.0
            yield _Reading(time=row["time"], joules=joules, covered_s=covered_s, by=by)


def energy_at(log: RunLog, time: Floats) -> Floats:
    """Return the kWh that the GPUs had used up to times [n] since 1970, NaN without readings."""
    rows = sorted(_readings(log), key=lambda row: row.time)
    if not any(row.by for row in rows):
        return np.full(len(time), np.nan)
    spent = np.cumsum([row.joules for row in rows]) / JOULES_PER_KWH
    return np.interp(time, [row.time for row in rows], spent, left=0.0)


def energy(log: RunLog, *, until: float = math.inf) -> Energy | None:
    """Return the energy up to a time in seconds since 1970, or None without readings.

    It is the increase of the driver's counter. Power times time stands for it in a row in which
    the GPU has no counter, or in which the counter began again.
    """
    rows = [row for row in _readings(log) if row.time <= until]
    by = {row.by for row in rows if row.by}
    if not by:
        return None
    run = RunFolder(log.path)
    gpus = [gpu for number in run.attempts() for gpu in read_gpu_logs(run.attempt(number))]
    cards = {f" of whole cards ({gpu.whole_card})" for gpu in gpus if gpu.whole_card}
    return Energy(
        kwh=sum(row.joules for row in rows) / JOULES_PER_KWH,
        measured_by=f"NVML {' and '.join(sorted(by))}{','.join(sorted(cards))}",
        covered_s=sum(row.covered_s for row in rows),
    )


def energy_row(
    log: RunLog, *, target: Target | None, g_co2_per_kwh: float | None
) -> dict[str, Any]:
    """Return the energy of a run, per image and up to a target; unknown values are None.

    `share` is that of the run's GPU time which the readings cover.
    """
    found, breakdown, count = energy(log), time_breakdown(log), ranks(log.facts)
    if found is None or breakdown is None:
        return {"slurm_kwh": slurm_kwh(log)}
    allocated_s, images = breakdown.allocated_s * (count or 0), log.last("images")
    reached = time_to_target(log, target) if target else None
    before = energy(log, until=breakdown.began + reached.seconds) if reached else None
    return {
        "energy_kwh": found.kwh,
        "energy_by": found.measured_by,
        "energy_share": min(1.0, found.covered_s / allocated_s) if allocated_s else None,
        "kwh_per_million_images": found.kwh / images * 1e6 if images else None,
        "kwh_to_target": before.kwh if before else None,
        "slurm_kwh": slurm_kwh(log),
        "co2_kg": None if g_co2_per_kwh is None else found.kwh * g_co2_per_kwh / 1e3,
    }


def slurm_kwh(log: RunLog) -> float | None:
    """Return the energy of whole nodes as Slurm counted it; None unless for every attempt."""
    run = RunFolder(log.path)
    try:
        files = [run.attempt(number) / "slurm-energy-j" for number in run.attempts()]
        return sum(float(file.read_text()) for file in files) / JOULES_PER_KWH or None
    except (OSError, ValueError):
        return None
