"""AdamW and its learning rate schedule."""

import torch
from torch import nn

from configs.schema.training import Optimizer


def make_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.AdamW:
    """Return fused AdamW (Loshchilov & Hutter 2019) with weight decay on matrices only."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def learning_rate(config: Optimizer, *, step: int, steps: int) -> float:
    """Return the rate of `step` (from 1) of `steps`: linear warm-up, constant, linear decay."""
    warm = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    falling = config.decay * steps
    left = max(0.0, min(1.0, (steps - step + 1) / falling)) if falling else 1.0
    return config.lr * warm * (config.decay_to + (1 - config.decay_to) * left)
