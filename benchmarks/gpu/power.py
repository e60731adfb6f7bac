"""The power and clocks of the GPU while a figure is taken, by NVML."""

import functools
import os
import threading
from types import TracebackType
from typing import Any

READING_S = 0.25
_KEPT = ("power_w", "sm_mhz", "temperature_c", "throttled_power", "throttled_heat")


class PowerWatch:
    """Reads the GPU of this process from start to end; `row` then has means, in W and MHz.

    The row is empty where nvidia-ml-py or the driver is missing.
    """

    def __init__(self) -> None:
        self.row: dict[str, float] = {}
        self._gpu = _gpu()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "PowerWatch":
        """Begin to read."""
        if self._gpu:
            self._gpu.row(os.getpid())  # what another watch has left
            self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        """End reading, and keep the means."""
        if self._gpu:
            self._ended.set()
            self._reader.join()
            row = self._gpu.row(os.getpid())
            self.row = {name: row[name] for name in _KEPT if name in row}

    def _read(self) -> None:
        while True:
            self._gpu.read()
            if self._ended.wait(READING_S):
                return


@functools.cache
def _gpu() -> Any:
    """Return the GPU of this process as the sampler of a job reads it, or None."""
    try:
        import pynvml as nvml

        from configs.errors import ConfigError
        from runs.attempt.gpu_sampler import find_gpus
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return next(iter(find_gpus(1, nvml=nvml)), None)
    except (nvml.NVMLError, ConfigError):
        return None
