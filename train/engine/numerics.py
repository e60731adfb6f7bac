"""The arithmetic of a run: its precision, and the check for non-finite values."""

import os

import torch
from torch import Tensor

from configs.errors import ConfigError
from train.engine.failure import RunFailure


def set_precision(precision: str, device: torch.device) -> None:
    """Make products and convolutions of float32 use TF32 if `precision` is tf32, and IEEE if not.

    By default cuDNN's convolutions use TF32. Raise `ConfigError` if the device computes in this
    precision only by emulation.
    """
    if device.type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if precision in ("bf16", "tf32") and capability < (8, 0):
            raise ConfigError(
                f"precision {precision} needs a GPU of compute capability 8.0; "
                f"{torch.cuda.get_device_name(device)} has {capability[0]}.{capability[1]}: set it "
                "to fp32"
            )
    elif precision == "tf32":
        raise ConfigError("precision tf32 needs an NVIDIA GPU; this rank has none: set it to fp32")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def set_deterministic(enabled: bool) -> None:
    """Use only algorithms that give the same bits every time, or whichever is fastest.

    Otherwise attention's backward pass adds with atomics, in any order. Products also need a fixed
    workspace, which cuBLAS reads from the environment at the first of them.
    """
    torch.use_deterministic_algorithms(enabled)
    # Memory that is read before it is written would be an error of ours.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if enabled:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


class NonFiniteCheck:
    """Ends the run at the first step whose loss or gradient is not finite.

    On a GPU the result for a step is read during the next one, so that no step waits for it;
    nothing is saved or recorded in between.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._value = torch.zeros(1, pin_memory=self._on_gpu)
        # A blocking event leaves the core to the data loader while the host waits.
        self._ready = torch.cuda.Event(blocking=True) if self._on_gpu else None
        self._step = 0
        self._had_value: list[bool] = []

    def put(self, step: int, value: Tensor) -> None:
        """Submit the `value` of a step, a scalar on the device; on a CPU, check it at once."""
        self._step = step
        self._value.copy_(value.detach(), non_blocking=True)
        if self._ready:
            self._ready.record()
        else:
            self.check()

    def check_during_next_step(self) -> None:
        """Do as `check`, once the next step's backward pass is launched."""
        if self._step and self._ready:
            self._had_value.append(self._ready.query())
        self.check()

    def host_bound(self) -> dict[str, float]:
        """Return, as a field, the share of steps since the last call in which a GPU waited.

        A GPU that has the value before the next step is launched has caught up with its host.
        """
        asked, self._had_value = self._had_value, []
        return {"host_bound": sum(asked) / len(asked)} if asked else {}

    def check(self) -> None:
        """Raise `RunFailure` if the last submitted value is not finite."""
        if not self._step:
            return
        if self._ready:
            self._ready.synchronize()
        if not torch.isfinite(self._value).item():
            raise RunFailure("nan", f"the loss or its gradient is not finite at step {self._step}")
        self._step = 0
