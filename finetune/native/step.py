"""The steps of a tuning: forward and backward of each microbatch, and the optimizer's."""

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from configs.schema import Finetune
from finetune.native.base_model import arithmetic
from finetune.native.data import Batches
from finetune.native.evaluation import LoraEvaluator
from finetune.native.lora import Weights
from finetune.native.loss import losses
from finetune.native.optimizer import reduce_gradients
from train.engine.context import TrainingContext
from train.engine.ema import EMA
from train.pretrain.optimizer import clip_factor, gradient_norm, scale_gradients


@dataclass(frozen=True, kw_only=True)
class LoraStep:
    """Steps of `weights`, the matrices that are learned beside those of `transformer`."""

    context: TrainingContext[Finetune]
    transformer: FluxTransformer2DModel
    weights: Weights
    optimizer: torch.optim.AdamW
    average: EMA
    batches: Batches
    evaluator: LoraEvaluator

    def begin(self) -> None:
        """Look once more where an attempt was killed before it could."""
        if self.evaluator.judging.is_lacking(self.context.state.step):
            self.context.clocks.lap("setup", drain=True)
            self.evaluator.look()

    def take(self, step: int) -> Tensor:
        """One optimizer step over the global batch; the norm of its gradients."""
        context, config = self.context, self.context.attempt.config
        loss = torch.zeros((), device=context.attempt.ranks.device)
        for part in range(context.layout.accumulation):
            loss = self._backward(step, part)
        context.arrivals.note()
        reduce_gradients(self.weights)
        context.finite.check()
        norm = gradient_norm(self.weights)
        scale_gradients(self.weights, clip_factor(norm, config.optimizer.clip))
        context.finite.put(step, norm + loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(step)
        return norm

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """The rate and the norm of the last step."""
        return {"lr": self.context.attempt.config.optimizer.lr, "grad_norm": norm.item()}

    def _backward(self, step: int, part: int) -> Tensor:
        """Forward and backward of a microbatch; the sum of its losses, detached."""
        context, config = self.context, self.context.attempt.config
        device = context.attempt.ranks.device
        context.clocks.lap("train")
        batch = self.batches.micro(step, part)
        context.clocks.lap("data")
        context.hang.passes()
        batch = batch.to(device)
        with arithmetic(device, config.train.precision):
            found = losses(self.transformer, batch)
        context.hang.passes()
        # The gradients of ranks are summed: a rank's share is that of its images.
        (found.sum() / config.train.global_batch).backward()
        loss = found.detach().sum(dtype=torch.float64)
        context.interval.add(loss, skipped=0)
        return loss
