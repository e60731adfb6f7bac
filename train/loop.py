"""The training loop."""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from configs.batch import Division
from configs.run import RunFolder
from configs.schema import Pretrain
from train.attempt import conclude
from train.checkpoint import Saver, TrainingState
from train.clocks import Clocks
from train.data.loader import Batch, Loading
from train.data.vae import pictures
from train.dist import Agreement, Ranks, data_rank
from train.ema import Average
from train.gns.watch import NoiseWatch
from train.hang import HangWatch
from train.interval import Interval
from train.journal import Arrivals, Journal, log
from train.layout import autocast
from train.objective import Objective
from train.optimizer import clip_factor, gradient_squares, learning_rate
from train.profile import ProfileWindow
from train.sampling import Place, grid_labels, sample, save_grid
from train.soundness import FiniteWatch, LossScale
from train.stopping import Watch, Wish
from train.validation import Validation


@dataclass(kw_only=True)
class Trainer:
    """All that a training step touches. `model` is `network` in its parallel wrapping."""

    config: Pretrain
    division: Division
    ranks: Ranks
    run: RunFolder
    network: nn.Module
    model: nn.Module
    objective: Objective
    optimizer: torch.optim.AdamW
    scale: LossScale
    average: Average
    state: TrainingState
    saver: Saver
    clocks: Clocks
    journal: Journal
    arrivals: Arrivals
    watch: Watch
    batches: Loading[Batch]
    validation: Validation | None
    noise: NoiseWatch | None
    window: ProfileWindow
    hang: HangWatch

    def __post_init__(self) -> None:
        self._interval = Interval(self.ranks.device)
        self._finite = FiniteWatch(self.ranks.device)
        self._saved_at = self.state.step

    def train(self) -> Wish:
        """Train to the last step or until a wish to leave; saved unless a newer attempt runs."""
        steps, agreement = self.config.train.steps, Agreement()
        self.rehearse()
        self.clocks.lap("setup", drain=True)
        agreement.vote(self.watch.wish())
        wish, norm = Wish(agreement.settle()), None
        while self.state.step < steps and wish is Wish.GO_ON:
            self._before_step(norm)
            norm = self.step()
            self._after_step(norm)
            wish = Wish(agreement.vote(self.watch.wish()))
        self.hang.rests()
        wish = max(wish, Wish(agreement.settle()))
        self._finite.check()
        if self.state.step == steps and wish is not Wish.LEAVE:
            wish = Wish.GO_ON
        elif wish is not Wish.LEAVE and self.state.step > self._saved_at:
            if self._interval.steps and norm is not None:
                self.record(norm)
            self.save()
        self.window.close()
        self._finish_saving(wish)
        return wish

    def conclude(self, wish: Wish) -> None:
        """Record how training ended, unless a newer attempt is there to do that."""
        at = {"step": self.state.step, "images": self.state.images}
        conclude(self.journal, wish, at | self.clocks.fields())
        self.arrivals.close()

    def _before_step(self, norm: Tensor | None) -> None:
        """Open the profiled window, whose steps are recorded apart."""
        if self.window.opens_before(self.state.step + 1):
            if self._interval.steps and norm is not None:
                self.record(norm)
            self.window.open()

    def _after_step(self, norm: Tensor) -> None:
        """What is due after a step: a record, a save, a validation, samples."""
        config, step = self.config, self.state.step
        last = step == config.train.steps
        saves = step % config.checkpoint.every == 0 or last
        judges = self.validation is not None and _is_due(step, config.validation.every, last)
        draws = _is_due(step, config.sample.every, last)
        probes = self.noise and self.noise.whole and _is_due(step, config.gns.whole_every, last)
        pauses = saves or judges or draws or probes
        self.hang.passes()
        if pauses:
            self.hang.rests()
        closes = self.window.closes_after_step()
        if closes or step % config.log.every == 0 or pauses:
            self.record(norm)
        if closes:
            self.window.close()
        if saves:
            self.save()
        if judges:
            self.validate()
        if probes:
            self.probe_noise()
        if draws:
            self.draw_samples()
        self._tell_saved()

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
            losses = self.objective.losses(self.model, image, image, label.float(), label)
        losses.sum().backward()
        self.optimizer.zero_grad(set_to_none=True)
        if self.noise:
            self.noise.rehearsed()

    def record(self, norm: Tensor) -> None:
        """Record the interval that ends with this step."""
        config, state = self.config, self.state
        self._finite.check()
        self.clocks.lap("train", drain=True)
        fields: dict[str, Any] = {"step": state.step, "images": state.images}
        images = self._interval.steps * config.train.global_batch
        fields |= self._interval.close(images=images, tensor=self.division.tensor)
        fields["lr"] = learning_rate(config.optimizer, step=state.step, steps=config.train.steps)
        fields["grad_norm"] = norm.item() / self.scale.value
        if config.train.precision == "fp16":
            fields["loss_scale"] = self.scale.value
        if self.ranks.device.type == "cuda":
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(self.ranks.device) / 1e9
        if self.noise:
            fields |= self.noise.fields()
        self.arrivals.write(state.step)
        self.journal.step(fields | self.clocks.fields(), steps=config.train.steps)

    def step(self) -> Tensor:
        """One optimizer step over the global batch; the norm of its (scaled) gradients."""
        config, step = self.config, self.state.step + 1
        self.hang.begins(step)
        rate = learning_rate(config.optimizer, step=step, steps=config.train.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for number in range(self.division.accumulation):
            last = number == self.division.accumulation - 1
            with self._reducing(last):
                loss = self.backward(last=last)
        self._finite.check()
        with self.window.region("optimizer"):
            if self.noise:
                self.noise.tap.settle()
            squares, scale = gradient_squares(self.network), self.scale.value
            norm = squares.sqrt().float()
            factor = clip_factor(norm / scale, config.optimizer.clip)
            steps = self.scale.settle(self.network, norm, factor)
            if self.noise:
                self.noise.close_step(squares, scale=scale, counted=steps)
            if steps:
                self._finite.put(step, norm + loss)
                self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if steps:
            with self.window.region("ema"):
                self.average.update(step)
        self.state.step = step
        self.state.images += config.train.global_batch
        self._interval.steps += 1
        self.clocks.lap("train")
        return norm

    def backward(self, *, last: bool) -> Tensor:
        """Forward and backward of the next microbatch; the sum of its losses, detached."""
        self.clocks.lap("train")
        with self.window.region("data"):
            batch = next(self.batches)
        self.clocks.lap("data")
        self.hang.passes()
        with self.window.region("copy"):
            batch = batch.to(self.ranks.device)
        if self.noise:
            self.noise.begins()
        with self.window.region("forward"), self.autocast():
            losses = self.objective.losses(
                self.model, batch.image, batch.noise, batch.t, batch.label
            )
            if batch.weight is not None:
                losses = losses * batch.weight
        self.hang.passes()
        if last:
            self.arrivals.note()
        # Ranks average their gradients: a rank's share of the batch makes up for that.
        share = self.division.data_ranks / self.config.train.global_batch
        with self.window.region("backward"):
            (losses.sum() * (share * self.scale.value)).backward()
        if self.noise:
            self.noise.ends(batch, factor=share * self.scale.value)
        loss = losses.detach().sum(dtype=torch.float64)
        self._interval.add(loss, skipped=batch.skipped)
        return loss

    def autocast(self) -> torch.autocast:
        """The arithmetic of the forward pass."""
        return autocast(self.config.train.precision, self.ranks.device)

    def save(self) -> None:
        """Save a checkpoint, or begin to."""
        with self.window.region("save"):
            self.saver.save(self.state)
        self._saved_at = self.state.step
        self.clocks.lap("save", drain=True)
        self._tell_saved()

    def validate(self) -> None:
        """Record the loss of the weights and of their average on held-out images."""
        assert self.validation is not None
        with self.autocast():
            fields = {"validation_loss": self.validation.loss(self.network, self.objective)}
            if self.average.average:
                with self.average.in_place():
                    averaged = self.validation.loss(self.network, self.objective)
                fields["validation_loss_ema"] = averaged
        self.clocks.lap("eval", drain=True)
        at = {"step": self.state.step, "images": self.state.images}
        self.journal.evaluation(at | fields)
        self.journal.event("evaluated", step=self.state.step)

    def probe_noise(self) -> None:
        """Record the whole model's gradient noise, bin by bin."""
        assert self.noise is not None
        assert self.noise.whole is not None
        found = self.noise.whole.measure(self.state.step, scale=self.scale.value)
        self.clocks.lap("eval", drain=True)
        if found is None:
            log.warning("step %d: a gradient's norm is not finite; no noise told", self.state.step)
            return
        at = {"step": self.state.step, "images": self.state.images}
        self.journal.measurement(at | {"gns_whole": found})
        self.journal.event("evaluated", step=self.state.step)

    def draw_samples(self) -> None:
        """Draw a sample grid from the averaged weights."""
        labels = grid_labels(self.config)
        number, division = data_rank(self.ranks, self.division), self.division
        place = Place(number=number, count=division.data_ranks, tensor=division.tensor)
        with self.window.region("sample"), self.average.in_place(), self.autocast():
            images = sample(
                self.network,
                self.objective,
                labels,
                self.config,
                place=place,
                device=self.ranks.device,
                seed=self.config.seed,
            )
        if images is not None:
            name = f"step-{self.state.step:09d}.png"
            shown = pictures(images, self.config, device=self.ranks.device)
            save_grid(shown, self.run.samples / name, columns=self.config.sample.per_class)
        self.clocks.lap("sample", drain=True)

    def _tell_saved(self) -> None:
        for saved in self.saver.finished():
            self.journal.event("saved", step=saved.step, images=saved.images)

    def _finish_saving(self, wish: Wish) -> None:
        if wish is Wish.LEAVE:
            self.saver.abandon()
            return
        self.saver.wait()
        self.clocks.lap("save")
        self._tell_saved()

    def _reducing(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients are reduced over the ranks in the last microbatch of a step only."""
        if isinstance(self.model, DistributedDataParallel) and not last:
            return self.model.no_sync()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


def _is_due(step: int, every: int | None, last: bool) -> bool:
    return last or (every is not None and step % every == 0)
