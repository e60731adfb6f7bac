"""The energy of a run's GPUs, from the readings of the sampler of each node."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from analysis.measure.time_breakdown import time_breakdown
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog, kept_with_log
from configs.files import read_text
from runs.folder import RunFolder
from runs.gpu_log import GpuLog, read_gpu_logs

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of all GPUs and attempts, who measured it, and the GPU-seconds it covers."""

    kwh: float
    measured_by: str
    covered_s: float


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The energy of one GPU from `since` to `time` (since 1970), and what measured it."""

    since: float
    time: float
    joules: float
    covered_s: float
    by: str


@kept_with_log
def _gpus(log: RunLog) -> list[GpuLog]:
    run = RunFolder(log.path)
    return [gpu for number in run.attempts() for gpu in read_gpu_logs(run.attempt(number))]


def _readings(log: RunLog) -> Iterator[list[_Reading]]:
    """Return the readings of each GPU of each attempt, in the order of time."""
    for gpu in _gpus(log):
        before, readings = gpu.facts.get("energy_j"), []
        for row in gpu.rows:
            after, power_w = row.get("energy_j"), row.get("power_w")
            joules, by = (power_w or 0.0) * row["span_s"], "" if power_w is None else "power"
            if before is not None and after is not None and after >= before:
                joules, by = after - before, "counter"
            before = after
            covered_s = row["span_s"] if after is not None or power_w is not None else 0.0
            since, time = row["time"] - row["span_s"], row["time"]
            readings.append(
                _Reading(since=since, time=time, joules=joules, covered_s=covered_s, by=by)
            )
        yield sorted(readings, key=lambda one: one.time)


@kept_with_log
def energy(log: RunLog) -> Energy | None:
    """Return the energy of a run, or None without readings.

    It is the increase of the driver's counter. Power times time stands for it in a row in which
    the GPU has no counter, or in which the counter began again.
    """
    rows = list(chain(*_readings(log)))
    by = {row.by for row in rows if row.by}
    if not by:
        return None
    cards = {f" of whole cards ({gpu.whole_card})" for gpu in _gpus(log) if gpu.whole_card}
    return Energy(
        kwh=sum(row.joules for row in rows) / JOULES_PER_KWH,
        measured_by=f"NVML {' and '.join(sorted(by))}{','.join(sorted(cards))}",
        covered_s=sum(row.covered_s for row in rows),
    )


def energy_row(log: RunLog, *, g_co2_per_kwh: float | None) -> dict[str, Any]:
    """Return the energy of a run, and per image; unknown values are None.

    `share` is that of the run's GPU time which the readings cover.
    """
    found, breakdown, count = energy(log), time_breakdown(log), ranks(log.facts)
    if found is None or breakdown is None:
        return {"slurm_kwh": slurm_kwh(log)}
    allocated_s, images = breakdown.allocated_s * (count or 0), log.last("images")
    return {
        "energy_kwh": found.kwh,
        "energy_by": found.measured_by,
        "energy_share": min(1.0, found.covered_s / allocated_s) if allocated_s else None,
        "kwh_per_million_images": found.kwh / images * 1e6 if images else None,
        "slurm_kwh": slurm_kwh(log),
        "co2_kg": None if g_co2_per_kwh is None else found.kwh * g_co2_per_kwh / 1e3,
    }


def slurm_kwh(log: RunLog) -> float | None:
    """Return the energy of whole nodes as Slurm counted it; None unless for every attempt."""
    run = RunFolder(log.path)
    try:
        files = [run.attempt(number) / "slurm-energy-j" for number in run.attempts()]
        return sum(float(read_text(file)) for file in files) / JOULES_PER_KWH or None
    except (OSError, ValueError):
        return None
