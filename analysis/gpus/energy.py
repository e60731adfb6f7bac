"""The energy of a run's GPUs, from the readings of the sampler of each node."""

from dataclasses import dataclass

from analysis.read.run_log import RunLog, kept_with_log
from runs.folder import RunFolder
from runs.gpu_log import read_gpu_logs

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of all GPUs and attempts, who measured it, and the GPU-seconds it covers."""

    kwh: float
    measured_by: str
    covered_s: float


@kept_with_log
def energy(log: RunLog) -> Energy | None:
    """Return the energy of a run, or None without readings.

    It is the increase of the driver's counter. Power times time stands for it in a row in which
    the GPU has no counter, or in which the counter began again.
    """
    joules, covered_s, by, cards = 0.0, 0.0, set[str](), set[str]()
    run = RunFolder(log.path)
    for gpu in (gpu for number in run.attempts() for gpu in read_gpu_logs(run.attempt(number))):
        before = gpu.facts.get("energy_j")
        for row in gpu.rows:
            after, power_w = row.get("energy_j"), row.get("power_w")
            if before is not None and after is not None and after >= before:
                joules, by = joules + after - before, by | {"counter"}
            elif power_w is not None:
                joules, by = joules + power_w * row["span_s"], by | {"power"}
            covered_s += row["span_s"] if after is not None or power_w is not None else 0.0
            before = after
        cards |= {f" of whole cards ({gpu.whole_card})"} if gpu.whole_card else set()
    if not by:
        return None
    measured_by = f"NVML {' and '.join(sorted(by))}{','.join(sorted(cards))}"
    return Energy(kwh=joules / JOULES_PER_KWH, measured_by=measured_by, covered_s=covered_s)
