"""The CPU time of the GPU sampler per second that it samples, by the number of GPUs.

    python -m benchmarks.gpu_sampler [--gpus 1 4 8] [--rounds 10] [--seconds 600]

The readings come through the real nvidia-ml-py from a library that is compiled here (by `cc`) and
gives constants, and from the stand-in of the tests; both sample virtual seconds. The time of the
driver itself, and of `/proc` for the processes on a GPU, is in neither: no driver is needed. The
start (Python, and the import of nvidia-ml-py) is counted apart, in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from configs.table import text_table

_STAND_IN = Path(__file__).parents[1] / "tests" / "stand_in"
# Every function returns success; the few whose value matters write it.
_LIBRARY = """
#include <string.h>
#define OK(name) int name() { return 0; }
#define ONE(name, v) int name(void *d, unsigned *x) { *x = v; return 0; }
#define TWO(name, v) int name(void *d, unsigned k, unsigned *x) { *x = v; return 0; }
OK(nvmlInitWithFlags)
int nvmlDeviceGetCount_v2(unsigned *n) { *n = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
ONE(nvmlDeviceIsMigDeviceHandle, 0)
ONE(nvmlDeviceGetPowerUsage, 300000)
ONE(nvmlDeviceGetEnforcedPowerLimit, 400000)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, 400000)
TWO(nvmlDeviceGetClockInfo, 1410)
TWO(nvmlDeviceGetMaxClockInfo, 1410)
TWO(nvmlDeviceGetTemperature, 60)
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *x) { *x = 7; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *x) { *x = 4; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *x) { x[0] = 90; x[1] = 20; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *x) { x[0] = x[1] = x[2] = 9; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *x) { *n = 0; return 0; }
"""
_CHILD = """
import io, os, sys, time
import pynvml
from runs.attempt.gpu_sampler import find_gpus, sample
pynvml.nvmlInit()
gpus = find_gpus(int(sys.argv[1]), nvml=pynvml)
seconds, now = float(sys.argv[2]), [0.0]
time.monotonic = lambda: now[0]
time.sleep = lambda s: now.__setitem__(0, now[0] + s)
os.getppid = lambda: int(now[0] < seconds)
out, began = io.StringIO(), time.process_time()
sample(out, gpus, parent=1)
print(1000 * (time.process_time() - began) / seconds, len(out.getvalue()) / seconds)
"""
_START = "import pynvml, runs.attempt.gpu_sampler, time; print(1000 * time.process_time(), 0)"


def _run(code: str, *arguments: object, **changes: str) -> tuple[float, float]:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [changes.pop("first", ""), root]))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path} | changes, cwd=root, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    cpu_ms, written = map(float, done.stdout.split())
    return cpu_ms, written


def main() -> None:
    """Measure in turn, and print the medians with their ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for gpus in options.gpus:
            (folder / "library.c").write_text(_LIBRARY)
            library = ["cc", "-shared", "-fPIC", f"-DGPUS={gpus}", "-o"]
            target = folder / "libnvidia-ml.so.1"
            subprocess.run([*library, target, folder / "library.c"], check=True)
            answers = {
                "PowerUsage": 300_000, "EnforcedPowerLimit": 400_000, "DefaultLimit": 400_000,
                "SM": 1410, "MEM": 1215, "MaxSM": 1410, "TemperatureV": 60, "MemoryInfo": 9,
                "TotalEnergyConsumption": 7, "ClocksEventReasons": 4, "UtilizationRates": 90,
            }  # fmt: skip
            (folder / "gpus.json").write_text(json.dumps([answers] * gpus))
            real = {"LD_LIBRARY_PATH": name}
            stand_in = {"first": str(_STAND_IN), "STAND_IN_GPUS": str(folder / "gpus.json")}
            for way, changes in (("nvidia-ml-py", real), ("stand-in", stand_in)):
                found = [
                    _run(_CHILD, gpus, options.seconds, **changes) for _ in range(options.rounds)
                ]
                rows.append(_row(f"{way}, {gpus} GPUs", found))
        rows.append(_row("start, once", [_run(_START) for _ in range(options.rounds)]))
    print(text_table(rows, whole=True))


def _row(name: str, found: list[tuple[float, float]]) -> dict[str, object]:
    cpu_ms = [cpu for cpu, _ in found]
    written = found[0][1]
    return {
        "sampling": name,
        "CPU ms per second": statistics.median(cpu_ms),
        "least": min(cpu_ms),
        "most": max(cpu_ms),
        "MB per day": written * 86_400 / 1e6 or None,
    }


if __name__ == "__main__":
    main()
