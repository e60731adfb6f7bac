"""A stand-in for nvidia-ml-py on a machine without a driver: the GPUs of the file `STAND_IN_GPUS`.

Each GPU has the answers of a function by the end of its name, in the units of NVML; a list gives
one answer per call, and begins again. A function without an answer is not supported. There are no
processes but those of `ComputeRunningProcesses`.
"""

# ruff: noqa: A002, N801, N802

import itertools
import json
import os
import types
from pathlib import Path
from typing import Any

NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0


class NVMLError(Exception):
    """An error code of the driver."""


class NVMLError_NotSupported(NVMLError):
    """A reading that the GPU does not have."""


class NVMLError_NotFound(NVMLError):
    """No such GPU."""


class _Gpu:
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        lists = {name: value for name, value in answers.items() if isinstance(value, list)}
        self._turns = {name: itertools.cycle(value) for name, value in lists.items()}

    def answer(self, name: str) -> Any:
        value = next(self._turns[name]) if name in self._turns else self.answers.get(name)
        if value is None:
            raise NVMLError_NotSupported("Not Supported")
        return value


_gpus: list[_Gpu] = []


def nvmlInit() -> None:
    _gpus[:] = map(_Gpu, json.loads(Path(os.environ["STAND_IN_GPUS"]).read_text()))


def nvmlDeviceGetCount() -> int:
    return sum("parent" not in gpu.answers for gpu in _gpus)


def nvmlDeviceGetHandleByIndex(index: int) -> _Gpu:
    if not 0 <= index < nvmlDeviceGetCount():
        raise NVMLError_NotFound("Invalid Argument")
    return _gpus[index]


def nvmlDeviceGetHandleByUUID(uuid: str) -> _Gpu:
    for gpu in _gpus:
        if gpu.answers["UUID"] == uuid:
            return gpu
    raise NVMLError_NotFound("Not Found")


def nvmlDeviceIsMigDeviceHandle(handle: _Gpu) -> int:
    return int("parent" in handle.answers)


def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle: _Gpu) -> _Gpu:
    return _gpus[handle.answers["parent"]]


def nvmlDeviceGetName(handle: _Gpu) -> str:
    return handle.answer("Name")


def nvmlDeviceGetUtilizationRates(handle: _Gpu) -> Any:
    return types.SimpleNamespace(gpu=handle.answer("UtilizationRates"), memory=0)


def nvmlDeviceGetMemoryInfo(handle: _Gpu) -> Any:
    return types.SimpleNamespace(used=handle.answer("MemoryInfo"))


def nvmlDeviceGetComputeRunningProcesses(handle: _Gpu) -> list[Any]:
    pids = handle.answers.get("ComputeRunningProcesses", [])
    return [types.SimpleNamespace(pid=pid) for pid in pids]


def nvmlDeviceGetClockInfo(handle: _Gpu, type: int) -> int:
    return handle.answer({NVML_CLOCK_SM: "SM"}[type])


def nvmlDeviceGetMaxClockInfo(handle: _Gpu, type: int) -> int:
    return handle.answer({NVML_CLOCK_SM: "MaxSM"}[type])


def nvmlDeviceGetTemperatureV(handle: _Gpu, sensor: int) -> int:
    return handle.answer("TemperatureV")


def nvmlDeviceGetTemperature(handle: _Gpu, sensor: int) -> int:
    return handle.answer("Temperature")


def nvmlDeviceGetPowerUsage(handle: _Gpu) -> int:
    return handle.answer("PowerUsage")


def nvmlDeviceGetTotalEnergyConsumption(handle: _Gpu) -> int:
    return handle.answer("TotalEnergyConsumption")


def nvmlDeviceGetCurrentClocksEventReasons(handle: _Gpu) -> int:
    return handle.answer("ClocksEventReasons")


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: _Gpu) -> int:
    return handle.answer("ClocksThrottleReasons")
