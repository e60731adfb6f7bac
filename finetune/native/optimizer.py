"""AdamW over the matrices of a LoRA, with moments in 32 or in 8 bits, and reduced gradients."""

import torch
import torch.distributed as dist
from torch import nn

from configs.errors import ConfigError
from configs.schema.finetune import LoraOptimizer

_EPS = 1e-6


def check_optimizer(asked: LoraOptimizer, device: torch.device) -> None:
    """Refuse 8-bit moments where there is no CUDA."""
    if asked.kind == "adamw8bit" and device.type != "cuda":
        raise ConfigError(
            "optimizer.kind adamw8bit needs a CUDA GPU, and this machine shows none; set "
            "optimizer.kind=adamw, or run it where a GPU is"
        )


def make_optimizer(weights: nn.Module, asked: LoraOptimizer) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019); with 8 bits its moments are kept as Dettmers et al. 2021.

    The moments are there from the beginning, so that a checkpoint can be loaded into them.
    """
    betas = (asked.beta1, asked.beta2)
    if asked.kind == "adamw":
        return torch.optim.AdamW(
            weights.parameters(),
            lr=asked.lr,
            betas=betas,
            eps=_EPS,
            weight_decay=asked.weight_decay,
            fused=True,
        )
    # Imported where wanted: it costs seconds that most runs need not spend.
    from torchao.optim import AdamW8bit

    optimizer = AdamW8bit(
        weights.parameters(), lr=asked.lr, betas=betas, eps=_EPS, weight_decay=asked.weight_decay
    )
    for parameter in weights.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": optimizer._new_buffer(parameter, True),
            "exp_avg_sq": optimizer._new_buffer(parameter, False),
        }
    return optimizer


def reduce_gradients(weights: nn.Module) -> None:
    """Sum the gradients over all ranks: in one message, to the same bits on every rank."""
    if dist.get_world_size() == 1:
        return
    gradients = [p.grad for p in weights.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
