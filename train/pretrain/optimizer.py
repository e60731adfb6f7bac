"""The optimizer of a run and the parameters that it treats alike."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from configs.schema import Pretrain
from train.engine.ema import EMA
from train.engine.gradients import local_part
from train.pretrain.muon import LocalAdamW, Muon

# Of muP (Yang et al. 2022, table 8): the other matrices read inputs that grow with the width.
_EDGES = ("patches_", "time.0.", "label.", "registers")


def make_optimizer(
    model: nn.Module, config: Pretrain, ema: EMA, *, projection: nn.Module | None = None
) -> torch.optim.Optimizer:
    """Return the optimizer of `optimizer.kind`, which may move the `ema` of `model`, too.

    AdamW moves the `projection` of REPA.
    """
    optimizer = config.optimizer
    adamw: dict[str, Any] = {
        "lr": optimizer.lr,
        "betas": (optimizer.beta1, optimizer.beta2),
        "eps": optimizer.eps,
    }
    groups = parameter_groups(model, config)
    if projection is not None:
        groups.append({"params": list(projection.parameters()), "weight_decay": 0.0})
    if optimizer.kind == "muon":
        dtype = torch.float32 if config.train.precision in ("fp32", "tf32") else torch.bfloat16
        return Muon(groups, dtype=dtype, fused=True, **adamw)
    if optimizer.kind == "schedule_free":
        averages = {p: ema.weights[name] for name, p in model.named_parameters()}
        return ScheduleFreeAdamW(groups, averages=averages, warmup=optimizer.warmup_steps, **adamw)
    return LocalAdamW(groups, fused=True, **adamw)


def parameter_groups(model: nn.Module, config: Pretrain) -> list[dict[str, Any]]:
    """Return the groups of parameters that are treated alike; weight decay is on matrices only.

    Muon moves the matrices of attention and MLP. The modulation stays with AdamW: it has one row
    per image, so that its gradient has no more directions than the batch has images.
    """
    optimizer, is_muon = config.optimizer, config.optimizer.kind == "muon"
    matrices, vectors, hidden, qkv = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    wide, ratio = list[Tensor](), config.model.width_ratio()
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif ratio != 1 and not (name.startswith(_EDGES) or name.endswith("modulation.up")):
            wide.append(parameter)
        elif not is_muon or not name.startswith("blocks.") or "modulation" in name:
            matrices.append(parameter)
        else:
            (qkv if name.endswith("qkv.weight") else hidden).append(parameter)
    decayed: dict[str, Any] = {"weight_decay": optimizer.weight_decay}
    groups = [{"params": matrices, **decayed}, {"params": vectors, "weight_decay": 0.0}]
    if wide:  # the product of rate and weight decay does not depend on the width
        decay = optimizer.weight_decay * ratio
        groups.append({"params": wide, "rate": 1 / ratio, "weight_decay": decay})
    if is_muon:
        decayed |= {"momentum": optimizer.momentum}
        groups.append({"params": hidden, "heads": None, **decayed})
        groups.append({"params": qkv, "heads": config.model.heads, **decayed})
    return groups


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """AdamW whose parameters are y, of which gradients are taken; the average x is evaluated.

    Source: Defazio et al. 2024, arXiv 2405.15682. With v the second moment without its bias, and
    c = lr^2 over the sum of lr^2 of all steps:
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
