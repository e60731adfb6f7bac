"""Non-finite losses and gradients: the check that ends a run, and the loss scale of fp16."""

import torch
from torch import Tensor, nn

from train.engine.failure import RunFailure
from train.engine.gradients import scale_gradients


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
