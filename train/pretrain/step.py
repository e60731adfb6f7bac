"""One training step: forward and backward of each microbatch, then the optimizer step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.schema import Pretrain
from train.data.loader import LoaderIterator, Microbatch
from train.engine.attempt import TrainingContext
from train.engine.clocks import region
from train.engine.part import Part
from train.model.parallelize import gradient_sync
from train.pretrain.train_state import TrainState


@dataclass(frozen=True, kw_only=True)
class PretrainStep:
    """Trains `train_state` on `batches`; `parts` observe their gradients."""

    context: TrainingContext[Pretrain]
    train_state: TrainState
    batches: LoaderIterator[Microbatch]
    parts: Sequence[Part]

    def begin(self) -> None:
        """Run forward and backward passes and discard their gradients.

        DDP reorders its buckets after the first backward pass, and the order in which gradients
        are summed over more than two ranks follows the buckets: without this pass, the first step
        after a resume would differ in its last bits. Compilation also happens here, so that it is
        not counted in `train_s`.
        """
        self.train_state.rehearse(self.context.layout.micro_batch, device=self._device)

    def take(self, step: int) -> Tensor:
        """Take one optimizer step over the global batch; return the gradient norm."""
        context, accumulation = self.context, self.context.layout.accumulation
        for number in range(accumulation):
            last = number == accumulation - 1
            with gradient_sync(self.train_state.model, last=last):
                loss = self._backward()
        for part in self.parts:
            part.after_backward()
        context.finite.check_during_next_step()
        gradient = self.train_state.update(step)
        context.finite.put(step, gradient.norm + loss)
        for part in self.parts:
            part.after_update(step, gradient)
        return gradient.norm

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """Return the rate and norm of the last step."""
        train_state = self.train_state
        rate = train_state.learning_rate(self.context.state.step)
        return {"lr": rate, "grad_norm": norm}

    def _backward(self) -> Tensor:
        """Run forward and backward of the next microbatch; return the sum of its losses."""
        context, train_state = self.context, self.train_state
        context.clocks.lap("train")
        with region("data"):
            batch = next(self.batches)
        context.clocks.lap("data")
        context.watchdog.progress()
        with region("copy"):
            batch = batch.to(self._device)
        with region("forward"):
            losses = train_state.losses(batch)
        context.watchdog.progress()
        # Ranks average their gradients, so multiply by their number to get the global mean.
        global_batch = train_state.config.train.global_batch
        factor = context.layout.data_ranks / global_batch
        with region("backward"):
            (losses.sum() * factor).backward()
        for part in self.parts:
            part.after_microbatch()
        loss = losses.detach().sum(dtype=torch.float64)
        context.losses.add(loss)
        return loss

    @property
    def _device(self) -> torch.device:
        return self.context.attempt.ranks.device
