"""The steps of a pretraining: forward and backward of each microbatch, and the optimizer's."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.schema import Pretrain
from train.data.loader import Batch, Loading
from train.engine.context import Course
from train.engine.profiler import ProfileWindow
from train.gradient_noise.online import NoiseWatch
from train.model.parallelize import autocast, reducing
from train.pretrain.optimizer import clip_factor, gradient_squares, learning_rate
from train.pretrain.train_state import Learner


@dataclass(frozen=True, kw_only=True)
class PretrainingSteps:
    """Steps of `learner` on `batches`; `window` sees their parts, `noise` their gradients."""

    course: Course[Pretrain]
    learner: Learner
    batches: Loading[Batch]
    window: ProfileWindow
    noise: NoiseWatch | None

    def begin(self) -> None:
        """One backward whose gradients are thrown away.

        DDP orders its buckets anew after the first backward, and the order in which gradients
        are summed over more than two ranks follows the buckets: without it the first step after
        a resume would differ in its last bits. What compiles, compiles here, outside `train_s`.
        """
        data, learner, micro = self._config.data, self.learner, self.course.division.micro_batch
        image = torch.zeros(micro, data.channels, data.size, data.size, device=self._device)
        label = torch.zeros(micro, dtype=torch.long, device=self._device)
        with autocast(self._config.train.precision, self._device):
            losses = learner.objective.losses(learner.model, image, image, label.float(), label)
        losses.sum().backward()
        learner.optimizer.zero_grad(set_to_none=True)
        if self.noise:
            self.noise.rehearsed()

    def take(self, step: int) -> Tensor:
        """One optimizer step over the global batch; the norm of its (scaled) gradients."""
        learner, accumulation = self.learner, self.course.division.accumulation
        for group in learner.optimizer.param_groups:
            group["lr"] = self._rate(step)
        for number in range(accumulation):
            last = number == accumulation - 1
            with reducing(learner.model, last=last):
                loss = self._backward(last=last)
        self.course.finite.check()
        with self.window.region("optimizer"):
            norm, is_sound = self._clip()
            if is_sound:
                self.course.finite.put(step, norm + loss)
                learner.optimizer.step()
            learner.optimizer.zero_grad(set_to_none=True)
        if is_sound:
            with self.window.region("ema"):
                learner.average.update(step)
        return norm

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """The rate and the norm of the last step, and the noise of all since the last record."""
        scale = self.learner.scale.value
        fields = {"lr": self._rate(self.course.state.step), "grad_norm": norm.item() / scale}
        if self._config.train.precision == "fp16":
            fields["loss_scale"] = scale
        return fields | (self.noise.fields() if self.noise else {})

    def _backward(self, *, last: bool) -> Tensor:
        """Forward and backward of the next microbatch; the sum of its losses, detached."""
        course, learner = self.course, self.learner
        course.clocks.lap("train")
        with self.window.region("data"):
            batch = next(self.batches)
        course.clocks.lap("data")
        course.hang.passes()
        with self.window.region("copy"):
            batch = batch.to(self._device)
        if self.noise:
            self.noise.begins()
        with self.window.region("forward"), autocast(self._config.train.precision, self._device):
            losses = learner.objective.losses(
                learner.model, batch.image, batch.noise, batch.t, batch.label
            )
            if batch.weight is not None:
                losses = losses * batch.weight
        course.hang.passes()
        if last:
            course.arrivals.note()
        # Ranks average their gradients: a rank's share of the batch makes up for that.
        factor = course.division.data_ranks / self._config.train.global_batch * learner.scale.value
        with self.window.region("backward"):
            (losses.sum() * factor).backward()
        if self.noise:
            self.noise.ends(batch, factor=factor)
        loss = losses.detach().sum(dtype=torch.float64)
        course.interval.add(loss, skipped=batch.skipped)
        return loss

    def _clip(self) -> tuple[Tensor, bool]:
        """The norm of the (scaled) gradients, clipped by now, and whether a step may be taken."""
        learner, scale = self.learner, self.learner.scale.value
        if self.noise:
            self.noise.tap.settle()
        squares = gradient_squares(learner.network)
        norm = squares.sqrt().float()
        factor = clip_factor(norm / scale, self._config.optimizer.clip)
        is_sound = learner.scale.settle(learner.network, norm, factor)
        if self.noise:
            self.noise.close_step(squares, scale=scale, counted=is_sound)
        return norm, is_sound

    def _rate(self, step: int) -> float:
        return learning_rate(self._config.optimizer, step=step, steps=self._config.train.steps)

    @property
    def _config(self) -> Pretrain:
        return self.course.attempt.config

    @property
    def _device(self) -> torch.device:
        return self.course.attempt.ranks.device
