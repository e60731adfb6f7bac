"""The training loop."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from configs.batch import Division
from configs.run import RunFolder
from configs.schema import Pretrain
from train.checkpoint import TrainingState, save
from train.clocks import Clocks
from train.data.loader import Batch
from train.dist import Agreement, Ranks, sum_over_ranks
from train.ema import Average
from train.failure import RunFailure
from train.journal import Journal
from train.objective import flow_loss
from train.optimizer import clip, learning_rate
from train.sampling import grid_labels, sample, save_grid
from train.stopping import Watch, Wish


@dataclass(kw_only=True)
class Trainer:
    """All that a training step touches. `model` is `network` in its parallel wrapping."""

    config: Pretrain
    division: Division
    ranks: Ranks
    run: RunFolder
    network: nn.Module
    model: nn.Module
    optimizer: torch.optim.AdamW
    average: Average
    state: TrainingState
    clocks: Clocks
    journal: Journal
    watch: Watch
    batches: Iterator[Batch]

    def train(self) -> Wish:
        """Train to the last step or until a wish to leave; saved unless a newer attempt runs."""
        config, steps = self.config, self.config.train.steps
        agreement = Agreement()
        interval = _Interval(self.ranks.device)
        saved_at = self.state.step
        self.rehearse()
        self.clocks.lap("setup", drain=True)
        agreement.vote(self.watch.wish())
        wish, norm = Wish(agreement.settle()), None
        while self.state.step < steps and wish is Wish.GO_ON:
            norm = self.step(interval)
            step = self.state.step
            saves = step % config.checkpoint.every == 0 or step == steps
            if step % config.log.every == 0 or saves:
                self.record(interval, norm)
            if saves:
                self.save()
                saved_at = step
            if step == steps or (config.sample.every and step % config.sample.every == 0):
                self.draw_samples()
            wish = Wish(agreement.vote(self.watch.wish()))
        wish = max(wish, Wish(agreement.settle()))
        if self.state.step == steps and wish is not Wish.LEAVE:
            return Wish.GO_ON
        if wish is not Wish.LEAVE and self.state.step > saved_at:
            if interval.steps and norm is not None:
                self.record(interval, norm)
            self.save()
        return wish

    def rehearse(self) -> None:
        """One backward whose gradients are thrown away, before the first step of an attempt.

        DDP orders its buckets anew after the first backward, and the order in which gradients
        are summed over more than two ranks follows the buckets: without it the first step after
        a resume would differ in its last bits. What compiles, compiles here, outside `train_s`.
        """
        data = self.config.data
        image = torch.zeros(
            self.division.micro_batch, data.channels, data.size, data.size, device=self.ranks.device
        )
        label = torch.zeros(len(image), dtype=torch.long, device=self.ranks.device)
        with self.autocast():
            flow_loss(self.model, image, image, label.float(), label).sum().backward()
        self.optimizer.zero_grad(set_to_none=True)

    def record(self, interval: "_Interval", norm: Tensor) -> None:
        """Record the interval that ends with this step."""
        self.clocks.lap("train", drain=True)
        self.journal.step(interval.close(self, norm=norm), steps=self.config.train.steps)

    def step(self, interval: "_Interval") -> Tensor:
        """One optimizer step over the global batch; the gradients' norm before clipping."""
        config, step = self.config, self.state.step + 1
        rate = learning_rate(config.optimizer, step=step, steps=config.train.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for number in range(self.division.accumulation):
            last = number == self.division.accumulation - 1
            with self._reducing(last):
                interval.add(self.backward())
        norm = clip(self.network, config.optimizer.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(step)
        self.state.step = step
        self.state.images += config.train.global_batch
        interval.steps += 1
        self.clocks.lap("train")
        return norm

    def backward(self) -> Tensor:
        """Forward and backward of the next microbatch; the sum of its losses, detached."""
        self.clocks.lap("train")
        batch = next(self.batches)
        self.clocks.lap("data")
        batch = batch.to(self.ranks.device)
        with self.autocast():
            losses = flow_loss(self.model, batch.image, batch.noise, batch.t, batch.label)
        # Ranks average their gradients: a rank's share of the batch makes up for that.
        (losses.sum() * (self.division.world / self.config.train.global_batch)).backward()
        return losses.detach().sum(dtype=torch.float64)

    def autocast(self) -> torch.autocast:
        """The arithmetic of the forward pass."""
        bf16 = self.config.train.precision == "bf16"
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=bf16)

    def save(self) -> None:
        """Save a checkpoint and say so."""
        save(self.run.checkpoints, self.state, keep=self.config.checkpoint.keep)
        self.clocks.lap("save", drain=True)
        self.journal.event("saved", step=self.state.step, images=self.state.images)

    def draw_samples(self) -> None:
        """Draw a sample grid from the averaged weights."""
        labels = grid_labels(self.config)
        with self.average.in_place(), self.autocast():
            images = sample(
                self.network, labels, self.config, device=self.ranks.device, seed=self.config.seed
            )
        if images is not None:
            name = f"step-{self.state.step:09d}.png"
            save_grid(images, self.run.samples / name, columns=self.config.sample.per_class)
        self.clocks.lap("sample", drain=True)

    def _reducing(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients are reduced over the ranks in the last microbatch of a step only."""
        if isinstance(self.model, DistributedDataParallel) and not last:
            return self.model.no_sync()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


class _Interval:
    """Losses since the last record."""

    def __init__(self, device: torch.device) -> None:
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = 0

    def add(self, losses: Tensor) -> None:
        self._total += losses

    def close(self, trainer: Trainer, *, norm: Tensor) -> dict[str, Any]:
        """The record of the interval, the loss averaged over its steps and all ranks."""
        config, state = trainer.config, trainer.state
        images = self.steps * config.train.global_batch
        loss = sum_over_ranks(self._total).item() / images
        self._total.zero_()
        self.steps = 0
        if not math.isfinite(loss):
            raise RunFailure("nan", f"the loss is {loss} at or before step {state.step}")
        steps = config.train.steps
        fields: dict[str, Any] = {
            "step": state.step,
            "images": state.images,
            "loss": loss,
            "lr": learning_rate(config.optimizer, step=state.step, steps=steps),
            "grad_norm": norm.item(),
        }
        if trainer.ranks.device.type == "cuda":
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(trainer.ranks.device) / 1e9
        return fields | trainer.clocks.fields()
