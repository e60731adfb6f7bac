"""The log of what the GPUs of an attempt did: `attempts/NNN/gpu/NODE.jsonl`, by its sampler.

The first line has the facts of each GPU, then there is a line per GPU for every ten seconds: means
of `power_w`, `sm_mhz` and `busy` (the share of time with a kernel), the largest
`memory_gb` and `temperature_c`, the energy counter `energy_j` at its end, the share of readings
`throttled_CAUSE`, and the number of `others`: processes that are not the run's. The line covers
`span_s` seconds up to `time`. A reading that driver or GPU do not give is absent.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.files import read_lines
from runs.records import is_number

# The bits of NVML's clock event reasons by cause; the power brake is drawn by a faulty supply.
THROTTLES = {"power": 0x04, "heat": 0x60, "hardware": 0x88, "setting": 0x12}


@dataclass(frozen=True, kw_only=True)
class GpuLog:
    """One GPU during one attempt: its facts, and its rows in the order of time."""

    node: str
    index: int
    facts: dict[str, float]
    rows: list[dict[str, float]] = field(default_factory=list)

    @property
    def whole_card(self) -> str:
        """Why power and energy are not only the run's: `MIG`, `shared`; empty if they are."""
        if self.facts.get("mig"):
            return "MIG"
        return "shared" if sum(row.get("others", 0) > 0 for row in self.rows) > 1 else ""


def read_gpu_logs(attempt: Path) -> list[GpuLog]:
    """Return the log of every GPU."""
    return [log for path in sorted(attempt.glob("gpu/*.jsonl")) for log in _read(path)]


def _read(path: Path) -> list[GpuLog]:
    """Return the logs in a file; torn lines and values that are no numbers are skipped."""
    logs: list[GpuLog] = []
    try:
        texts = list(read_lines(path))
    except OSError:
        return logs
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        row = _numbers(line)
        if {"time", "span_s"} <= row.keys() and row.get("gpu") in range(len(logs)):
            logs[line["gpu"]].rows.append(row)
        elif not logs and isinstance(line, dict) and isinstance(line.get("gpus"), list):
            facts = enumerate(map(_numbers, line["gpus"]))
            logs = [GpuLog(node=path.stem, index=number, facts=fact) for number, fact in facts]
    return logs


def _numbers(line: Any) -> dict[str, float]:
    known = line.items() if isinstance(line, dict) else ()
    return {name: value for name, value in known if is_number(value)}
