"""The arithmetic of a run: its precision, the check for non-finite values, the scale of fp16."""

import os

import torch
from torch import Tensor, nn

from configs.errors import ConfigError
from train.engine.failure import RunFailure
from train.engine.gradients import scale_gradients


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
                "to fp16 (pretraining) or fp32"
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
        self._ready = torch.cuda.Event() if self._on_gpu else None
        self._step = 0

    def put(self, step: int, value: Tensor) -> None:
        """Submit the `value` of a step, a scalar on the device; on a CPU, check it at once."""
        self._step = step
        self._value.copy_(value.detach(), non_blocking=True)
        if self._ready:
            self._ready.record()
        else:
            self.check()

    def check(self) -> None:
        """Raise `RunFailure` if the last submitted value is not finite."""
        if not self._step:
            return
        if self._ready:
            self._ready.synchronize()
        if not torch.isfinite(self._value).item():
            raise RunFailure("nan", f"the loss or its gradient is not finite at step {self._step}")


class LossScaler:
    """The power of two that losses are multiplied by, so that fp16 can hold their gradients.

    It doubles after `patience` good steps and halves at each step whose gradients overflow; that
    step is skipped (Micikevicius et al. 2018). Without `fp16` it stays 1.
    """

    LEAST = 2.0**-14

    def __init__(self, *, fp16: bool, patience: int = 2000) -> None:
        self.value = 2.0**16 if fp16 else 1.0
        self.good = 0
        self._fp16, self._patience = fp16, patience

    def unscale(self, model: nn.Module, norm: Tensor, factor: Tensor) -> bool:
        """Multiply the gradients by `factor` and divide them by the scale.

        `norm` is the norm of the scaled gradients. Return False if it overflowed: then the
        gradients are unchanged, and no step may be taken.
        """
        if not self._fp16:
            scale_gradients(model, factor)
            return True
        if torch.isfinite(norm).item():
            scale_gradients(model, factor / self.value)
            self.good += 1
            if self.good == self._patience:
                self.value, self.good = self.value * 2, 0
            return True
        self.value, self.good = self.value / 2, 0
        if self.value < self.LEAST:
            raise RunFailure("nan", "gradients overflow fp16 at any loss scale")
        return False
