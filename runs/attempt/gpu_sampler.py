"""Record what the GPUs of a node do during an attempt, in a process beside the ranks.

    python -m runs.attempt.gpu_sampler ATTEMPT RANKS PARENT

`jobs/agents.sh` starts it. It reads NVML once a second, writes `ATTEMPT/gpu/NODE.jsonl`
(`runs/gpu_log.py`), and ends within two seconds of the process PARENT, however that ended.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from configs.errors import ConfigError
from runs.gpu_log import THROTTLES
from runs.slurm_env import node_name

READING_S, ROW_S = 1.0, 10.0
# Written once for each GPU; the energy counter also in its rows.
_FACTS = ("energy_j", "max_sm_mhz", "mig")


class SampledGpu:
    """A GPU, or a MIG instance with the card it is a part of, and the readings of one row."""

    def __init__(self, handle: Any, *, nvml: Any) -> None:
        self._nvml, self._own, self._card = nvml, handle, handle
        if self._answer(lambda: nvml.nvmlDeviceIsMigDeviceHandle(handle)):
            self._card = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        # Of two names of a reading, the first that driver and GPU know counts.
        readers = reversed(self._readers())
        self._known = {name: ask for name, ask in readers if self._answer(ask) is not None}
        self.facts = {name: self._known[name]() for name in _FACTS if name in self._known}
        for name in _FACTS[1:]:
            self._known.pop(name, None)
        self._taken: list[dict[str, Any]] = []

    def _readers(self) -> list[tuple[str, Callable[[], Any]]]:
        nvml, own, card = self._nvml, self._own, self._card
        sm, sensor = nvml.NVML_CLOCK_SM, nvml.NVML_TEMPERATURE_GPU
        return [
            ("energy_j", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000),
            ("max_sm_mhz", lambda: nvml.nvmlDeviceGetMaxClockInfo(card, sm)),
            ("mig", lambda: 1 if own is not card else None),
            ("power_w", lambda: nvml.nvmlDeviceGetPowerUsage(card) / 1000),
            ("sm_mhz", lambda: nvml.nvmlDeviceGetClockInfo(card, sm)),
            ("reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(card)),
            ("reasons", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)),
            # An instance has no utilisation, and its card's is not its own.
            ("busy", lambda: nvml.nvmlDeviceGetUtilizationRates(own).gpu / 100),
            ("memory_gb", lambda: nvml.nvmlDeviceGetMemoryInfo(own).used / 1e9),
            ("temperature_c", lambda: nvml.nvmlDeviceGetTemperatureV(card, sensor)),
            ("temperature_c", lambda: nvml.nvmlDeviceGetTemperature(card, sensor)),
        ]

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """Return a reading, or None if driver or GPU do not give it."""
        try:
            return ask()
        except self._nvml.NVMLError:
            return None

    def read(self) -> None:
        """Take one reading."""
        self._taken.append({name: self._answer(ask) for name, ask in self._known.items()})

    def row(self, parent: int) -> dict[str, float]:
        """Return the readings since the last row as one; those that failed are absent."""
        taken, self._taken = self._taken, []
        row: dict[str, float] = {}
        for name in self._known:
            values = [one[name] for one in taken if one[name] is not None]
            if values and name == "reasons":
                for cause, bits in THROTTLES.items():
                    row[f"throttled_{cause}"] = sum(bool(v & bits) for v in values) / len(values)
            elif values and name == "energy_j":
                row[name] = values[-1]
            elif values:
                largest = name in ("memory_gb", "temperature_c")
                row[name] = max(values) if largest else sum(values) / len(values)
        ask = self._nvml.nvmlDeviceGetComputeRunningProcesses
        pids = {process.pid for process in self._answer(lambda: ask(self._own)) or []}
        # If none is ours, this may be a container, in which processes have other numbers.
        if ours := {pid for pid in pids if _is_below(pid, parent)}:
            row["others"] = len(pids - ours)
        return {name: round(value, 3) for name, value in row.items()}


def _is_below(pid: int, parent: int) -> bool:
    """Return whether a process is `parent` or was started below it."""
    while pid > 1 and pid != parent:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == parent


def find_gpus(ranks: int, *, nvml: Any) -> list[SampledGpu]:
    """Return the GPUs of this node's ranks; raise `ConfigError` if it is uncertain which."""
    count = nvml.nvmlDeviceGetCount()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    words = [word.strip() for word in visible.split(",")][:ranks]
    by_speed = os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(words) < count
    if by_speed and all(word.isdecimal() for word in words):
        cards = map(nvml.nvmlDeviceGetHandleByIndex, range(count))
        if len({nvml.nvmlDeviceGetName(card) for card in cards}) > 1:
            raise ConfigError("CUDA numbers these GPUs by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    of_uuid, of_index = nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetHandleByIndex
    handles = [of_index(int(word)) if word.isdecimal() else of_uuid(word) for word in words]
    return [SampledGpu(handle, nvml=nvml) for handle in handles]


def sample(file: IO[str], gpus: Sequence[SampledGpu], *, parent: int) -> None:
    """Write the facts, then a row per GPU every `ROW_S` seconds, until `parent` has ended."""

    def write(line: dict[str, Any]) -> None:
        print(json.dumps(line, separators=(",", ":")), file=file, flush=True)

    write({"time": round(time.time(), 3), "gpus": [gpu.facts for gpu in gpus]})
    since = due = time.monotonic()
    is_wanted = True
    while is_wanted:
        is_wanted = os.getppid() == parent
        for gpu in gpus:
            gpu.read()
        now = time.monotonic()
        if now - since >= ROW_S or not is_wanted:
            at = {"time": round(time.time(), 3), "span_s": round(now - since, 3)}
            for index, gpu in enumerate(gpus):
                write(at | {"gpu": index} | gpu.row(parent))
            since = now
        # After a pause, readings are not made up for.
        due = max(due + READING_S, now)
        time.sleep(max(0.0, due - time.monotonic()) if is_wanted else 0)


def main(attempt: Path, *, ranks: int, parent: int) -> None:
    """Sample until `parent` has ended; say once if that cannot be done."""
    try:
        import pynvml as nvml
    except ImportError:
        print("no GPU readings: nvidia-ml-py is not installed; run env/create.sh again")
        return
    file = attempt / "gpu" / f"{node_name()}.jsonl"
    try:
        nvml.nvmlInit()
        gpus = find_gpus(ranks, nvml=nvml)
        file.parent.mkdir(exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            sample(out, gpus, parent=parent)
    except FileExistsError:
        return  # another agent of this machine samples them
    except (nvml.NVMLError, ConfigError, OSError) as error:
        print(f"no GPU readings on {node_name()}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), ranks=int(sys.argv[2]), parent=int(sys.argv[3]))
