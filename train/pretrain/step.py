"""The steps of a pretraining: forward and backward of each microbatch, and the optimizer's."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.schema import Pretrain
from train.data.loader import LoaderIterator, Microbatch
from train.engine.attempt import TrainingContext
from train.engine.gradients import clip_factor, squared_gradient_norm
from train.engine.profiler import ProfileWindow
from train.gradient_noise.online import OnlineNoise
from train.model.parallelize import autocast, gradient_sync
from train.pretrain.optimizer import learning_rate
from train.pretrain.train_state import TrainState


@dataclass(frozen=True, kw_only=True)
class PretrainStep:
    """Steps of `learner` on `batches`; `window` sees their parts, `noise` their gradients."""

    context: TrainingContext[Pretrain]
    train_state: TrainState
    batches: LoaderIterator[Microbatch]
    window: ProfileWindow
    noise: OnlineNoise | None

    def begin(self) -> None:
        """One backward whose gradients are thrown away.

        DDP orders its buckets anew after the first backward, and the order in which gradients
        are summed over more than two ranks follows the buckets: without it the first step after
        a resume would differ in its last bits. What compiles, compiles here, outside `train_s`.
        """
        data, train_state, micro = (
            self._config.data,
            self.train_state,
            self.context.layout.micro_batch,
        )
        image = torch.zeros(micro, data.channels, data.size, data.size, device=self._device)
        label = torch.zeros(micro, dtype=torch.long, device=self._device)
        with autocast(self._config.train.precision, self._device):
            losses = train_state.objective.losses(
                train_state.model, image, image, label.float(), label
            )
        losses.sum().backward()
        train_state.optimizer.zero_grad(set_to_none=True)
        if self.noise:
            self.noise.discard()

    def take(self, step: int) -> Tensor:
        """One optimizer step over the global batch; the norm of its (scaled) gradients."""
        train_state, accumulation = self.train_state, self.context.layout.accumulation
        for group in train_state.optimizer.param_groups:
            group["lr"] = self._rate(step)
        for number in range(accumulation):
            last = number == accumulation - 1
            with gradient_sync(train_state.model, last=last):
                loss = self._backward(last=last)
        self.context.finite.check()
        with self.window.region("optimizer"):
            norm, is_sound = self._clip()
            if is_sound:
                self.context.finite.put(step, norm + loss)
                train_state.optimizer.step()
            train_state.optimizer.zero_grad(set_to_none=True)
        if is_sound:
            with self.window.region("ema"):
                train_state.average.update(step)
        return norm

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """The rate and the norm of the last step, and the noise of all since the last record."""
        scale = self.train_state.scale.value
        fields = {"lr": self._rate(self.context.state.step), "grad_norm": norm.item() / scale}
        if self._config.train.precision == "fp16":
            fields["loss_scale"] = scale
        return fields | (self.noise.fields() if self.noise else {})

    def _backward(self, *, last: bool) -> Tensor:
        """Forward and backward of the next microbatch; the sum of its losses, detached."""
        context, train_state = self.context, self.train_state
        context.clocks.lap("train")
        with self.window.region("data"):
            batch = next(self.batches)
        context.clocks.lap("data")
        context.watchdog.progress()
        with self.window.region("copy"):
            batch = batch.to(self._device)
        if self.noise:
            self.noise.before_forward()
        with self.window.region("forward"), autocast(self._config.train.precision, self._device):
            losses = train_state.objective.losses(
                train_state.model, batch.image, batch.noise, batch.t, batch.label
            )
            if batch.weight is not None:
                losses = losses * batch.weight
        context.watchdog.progress()
        if last:
            context.arrivals.mark()
        # Ranks average their gradients: a rank's share of the batch makes up for that.
        factor = (
            context.layout.data_ranks / self._config.train.global_batch * train_state.scale.value
        )
        with self.window.region("backward"):
            (losses.sum() * factor).backward()
        if self.noise:
            self.noise.after_backward(batch, factor=factor)
        loss = losses.detach().sum(dtype=torch.float64)
        context.losses.add(loss, skipped=batch.skipped)
        return loss

    def _clip(self) -> tuple[Tensor, bool]:
        """The norm of the (scaled) gradients, clipped by now, and whether a step may be taken."""
        train_state, scale = self.train_state, self.train_state.scale.value
        if self.noise:
            self.noise.hook.restore_gradients()
        squares = squared_gradient_norm(train_state.network)
        norm = squares.sqrt().float()
        factor = clip_factor(norm / scale, self._config.optimizer.clip)
        is_sound = train_state.scale.unscale(train_state.network, norm, factor)
        if self.noise:
            self.noise.finish_step(squares, scale=scale, counted=is_sound)
        return norm, is_sound

    def _rate(self, step: int) -> float:
        return learning_rate(self._config.optimizer, step=step, steps=self._config.train.steps)

    @property
    def _config(self) -> Pretrain:
        return self.context.attempt.config

    @property
    def _device(self) -> torch.device:
        return self.context.attempt.ranks.device
