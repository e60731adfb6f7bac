"""AdamW over the matrices of a LoRA, with 32- or 8-bit moments, and the gradient all-reduce."""

import torch
import torch.distributed as dist
from torch import nn

from configs.errors import ConfigError
from configs.schema.finetune import LoraOptimizer

_EPS = 1e-6


def check_optimizer(config: LoraOptimizer, device: torch.device) -> None:
    """Raise `ConfigError` if 8-bit moments are asked for without CUDA."""
    if config.kind == "adamw8bit" and device.type != "cuda":
        raise ConfigError(
            "optimizer.kind adamw8bit needs a CUDA GPU, and this machine has none; set "
            "optimizer.kind=adamw, or run it on a GPU"
        )


def make_optimizer(weights: nn.Module, config: LoraOptimizer) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov & Hutter 2019); 8-bit moments follow Dettmers et al. 2021.

    The 8-bit moments exist from the start, so that a checkpoint can be loaded into them.
    """
    betas = (config.beta1, config.beta2)
    if config.kind == "adamw":
        return torch.optim.AdamW(
            weights.parameters(),
            lr=config.lr,
            betas=betas,
            eps=_EPS,
            weight_decay=config.weight_decay,
            fused=True,
        )
    # Imported here because it takes seconds and most runs do not need it.
    from torchao.optim import AdamW8bit

    optimizer = AdamW8bit(
        weights.parameters(),
        lr=config.lr,
        betas=betas,
        eps=_EPS,
        weight_decay=config.weight_decay,
    )
    for parameter in weights.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": optimizer._new_buffer(parameter, True),
            "exp_avg_sq": optimizer._new_buffer(parameter, False),
        }
    return optimizer


def sum_gradients(weights: nn.Module) -> None:
    """Sum the gradients over all ranks in one all-reduce; every rank gets the same bits."""
    if dist.get_world_size() == 1:
        return
    gradients = [p.grad for p in weights.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
