"""Schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682): an average instead of a decay."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from train.engine.gradients import local_part


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """AdamW whose parameters are y, of which gradients are taken; the average x is evaluated.

    With v the second moment without its bias, and c = lr^2 over the sum of lr^2 of all steps:
    z <- z - lr (g / (sqrt(v) + eps) + weight_decay y), x <- x + c (z - x), y <- z + beta1 (x - z).
    `averages` has the tensor x of each parameter, `warmup` is the number of steps of warm-up.
    """

    def __init__(
        self, groups: list[dict[str, Any]], *, averages: Mapping[Any, Tensor], **defaults: Any
    ) -> None:
        super().__init__(groups, {"step": 1} | defaults)
        self._averages = averages
        for y in averages:
            self.state[y] = {"z": y.detach().clone(), "exp_avg_sq": torch.zeros_like(y)}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take the step whose number, from 1, is the `step` of every group."""
        for group in self.param_groups:
            rate, (beta1, beta2), parameters = group["lr"], group["betas"], group["params"]
            states, step = [self.state[y] for y in parameters], group["step"]
            x = [local_part(self._averages[y]) for y in parameters]
            z, v = ([local_part(s[name]) for s in states] for name in ("z", "exp_avg_sq"))
            y = [local_part(y) for y in parameters]
            gradients = [local_part(y.grad) for y in parameters]
            if hasattr(self, "grad_scale"):
                torch._foreach_div_(gradients, self.grad_scale)
            torch._foreach_mul_(v, beta2)
            torch._foreach_addcmul_(v, gradients, gradients, value=1 - beta2)
            roots = torch._foreach_sqrt(v)
            torch._foreach_div_(roots, (1 - beta2**step) ** 0.5)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_addcdiv_(z, gradients, roots, value=-rate)
            torch._foreach_add_(z, y, alpha=-rate * group["weight_decay"])
            torch._foreach_lerp_(x, z, _share(step, warmup=group["warmup"]))
            torch._foreach_copy_(y, z)
            torch._foreach_lerp_(y, x, beta1)


def _share(step: int, *, warmup: int) -> float:
    """Return c: the square of the rate of `step` over the sum of those of all steps so far."""
    length = max(1, warmup)
    warm = min(step, length)
    return (warm / length) ** 2 / (warm * (warm + 1) * (2 * warm + 1) / 6 / length**2 + step - warm)
