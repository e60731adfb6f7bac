"""One training step: forward and backward of each microbatch, then the optimizer step."""

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from configs.schema import Finetune
from finetune.native.data import Batches
from finetune.native.lora import LoraWeights
from finetune.native.loss import losses
from train.engine.attempt import TrainingContext
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients, sum_gradients

_LARGEST_NORM = 1.0


def make_optimizer(weights: LoraWeights) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov & Hutter 2019) for the LoRA matrices; steps set its rate."""
    return torch.optim.AdamW(
        weights.parameters(), betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=True
    )


@dataclass(frozen=True, kw_only=True)
class LoraStep:
    """Steps of `weights`, the LoRA matrices beside the frozen weights of `transformer`."""

    context: TrainingContext[Finetune]
    transformer: FluxTransformer2DModel
    weights: LoraWeights
    optimizer: torch.optim.Optimizer
    batches: Batches

    def begin(self) -> None:
        """Prepare nothing."""

    def take(self, step: int) -> Tensor:
        """Take one optimizer step over the global batch and return the gradient norm."""
        context, config = self.context, self.context.attempt.config
        loss = torch.zeros((), device=context.attempt.ranks.device)
        for index in range(context.layout.accumulation):
            loss = self._backward(step, index)
        sum_gradients(self.weights)
        context.finite.check_during_next_step()
        norm = gradient_norm(self.weights)
        scale_gradients(self.weights, clip_factor(norm, _LARGEST_NORM))
        context.finite.put(step, norm + loss)
        rate = config.optimizer.rate(step=step, steps=config.train.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """Return learning rate and gradient norm as fields of a record."""
        (group,) = self.optimizer.param_groups
        return {"lr": float(group["lr"]), "grad_norm": norm}

    def _backward(self, step: int, index: int) -> Tensor:
        """Run one microbatch forward and backward; return the sum of its losses, detached."""
        context, config = self.context, self.context.attempt.config
        device = context.attempt.ranks.device
        context.clocks.lap("train")
        batch = self.batches.microbatch(step, index)
        context.clocks.lap("data")
        context.watchdog.progress()
        batch = batch.to(device)
        per_image = losses(self.transformer, batch)
        context.watchdog.progress()
        # Gradients are summed over ranks, so each image counts 1/global_batch.
        (per_image.sum() / config.train.global_batch).backward()
        loss = per_image.detach().sum(dtype=torch.float64)
        context.losses.add(loss)
        return loss
