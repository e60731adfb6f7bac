"""AdamW and its learning rate schedule."""

from typing import Any

import torch
from torch import Tensor, nn

from configs.schema.training import Optimizer
from train.engine.gradients import local_part


class LocalAdamW(torch.optim.AdamW):
    """AdamW that steps on each rank's parts: DTensors take twice the CPU time to start a step."""

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        has_complex: bool = super()._init_group(group, *lists)
        for tensors in lists:
            tensors[:] = [local_part(tensor) for tensor in tensors]
        return has_complex


def make_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.AdamW:
    """Return fused AdamW (Loshchilov & Hutter 2019) with weight decay on matrices only."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return LocalAdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def learning_rate(config: Optimizer, *, step: int, steps: int) -> float:
    """Return the rate of `step` (from 1) of `steps`: linear warm-up, constant, linear decay."""
    warm = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    falling = config.decay * steps
    left = max(0.0, min(1.0, (steps - step + 1) / falling)) if falling else 1.0
    return config.lr * warm * (config.decay_to + (1 - config.decay_to) * left)
