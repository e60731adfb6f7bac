"""The training loop of a LoRA."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from configs.batch import Division
from configs.run import RunFolder
from configs.schema import Finetune
from finetune.embedded.adapters import Weights, save_lora
from finetune.embedded.base import arithmetic
from finetune.embedded.batches import Batches
from finetune.embedded.judging import Judging
from finetune.embedded.loss import losses
from finetune.embedded.optimizer import reduce_gradients
from train.attempt import conclude
from train.checkpoint import Saver, TrainingState
from train.clocks import Clocks
from train.dist import Agreement, Ranks, from_every_rank
from train.ema import Average
from train.failure import RunFailure
from train.hang import HangWatch
from train.interval import Interval
from train.journal import Arrivals, Journal, log
from train.optimizer import clip_factor, gradient_norm, scale_gradients
from train.soundness import FiniteWatch
from train.stopping import Watch, Wish


@dataclass(kw_only=True)
class Trainer:
    """All that a training step touches; `weights` are the matrices that are learned."""

    config: Finetune
    division: Division
    ranks: Ranks
    run: RunFolder
    transformer: FluxTransformer2DModel
    weights: Weights
    optimizer: torch.optim.AdamW
    average: Average
    state: TrainingState
    saver: Saver
    clocks: Clocks
    journal: Journal
    arrivals: Arrivals
    watch: Watch
    batches: Batches
    judging: Judging
    hang: HangWatch

    def __post_init__(self) -> None:
        self._interval = Interval(self.ranks.device)
        self._finite = FiniteWatch(self.ranks.device)
        self._saved_at = self.state.step

    def train(self) -> Wish:
        """Train to the last step or until a wish to leave; saved unless a newer attempt runs."""
        steps, agreement = self.config.train.steps, Agreement()
        self.clocks.lap("setup", drain=True)
        if self.judging.is_lacking(self.state.step):
            self._look()
        agreement.vote(self.watch.wish())
        wish, norm = Wish(agreement.settle()), None
        while self.state.step < steps and wish is Wish.GO_ON:
            norm = self._step()
            self._after_step(norm)
            wish = Wish(agreement.vote(self.watch.wish()))
        self.hang.rests()
        wish = max(wish, Wish(agreement.settle()))
        self._finite.check()
        if wish is Wish.LEAVE:
            return wish
        if self.state.step == steps:
            return Wish.GO_ON
        if self.state.step > self._saved_at:
            if self._interval.steps and norm is not None:
                self._record(norm)
            self._save()
        return wish

    def conclude(self, wish: Wish) -> None:
        """Record how training ended, unless a newer attempt is there to do that."""
        at = {"step": self.state.step, "images": self.state.images}
        conclude(self.journal, wish, at | self.clocks.fields())
        self.arrivals.close()

    def _after_step(self, norm: Tensor) -> None:
        """What is due after a step: a record, a save, a look at what was learned."""
        config, step = self.config, self.state.step
        last = step == config.train.steps
        saves = last or step % config.checkpoint.every == 0
        looks = last or self.judging.is_due(step)
        self.hang.passes()
        if saves or looks:
            self.hang.rests()
        if saves or looks or step % config.log.every == 0:
            self._record(norm)
        if saves:
            self._save()
        if looks:
            self._look()

    def _step(self) -> Tensor:
        """One optimizer step over the global batch; the norm of its gradients."""
        step = self.state.step + 1
        self.hang.begins(step)
        loss = torch.zeros((), device=self.ranks.device)
        for part in range(self.division.accumulation):
            loss = self._backward(step, part)
        self.arrivals.note()
        reduce_gradients(self.weights)
        self._finite.check()
        norm = gradient_norm(self.weights)
        scale_gradients(self.weights, clip_factor(norm, self.config.optimizer.clip))
        self._finite.put(step, norm + loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(step)
        self.state.step = step
        self.state.images += self.config.train.global_batch
        self._interval.steps += 1
        self.clocks.lap("train")
        return norm

    def _backward(self, step: int, part: int) -> Tensor:
        """Forward and backward of a microbatch; the sum of its losses, detached."""
        self.clocks.lap("train")
        batch = self.batches.micro(step, part)
        self.clocks.lap("data")
        self.hang.passes()
        batch = batch.to(self.ranks.device)
        with arithmetic(self.ranks.device, self.config.train.precision):
            found = losses(self.transformer, batch)
        self.hang.passes()
        # The gradients of ranks are summed: a rank's share is that of its images.
        (found.sum() / self.config.train.global_batch).backward()
        loss = found.detach().sum(dtype=torch.float64)
        self._interval.add(loss, skipped=0)
        return loss

    def _record(self, norm: Tensor) -> None:
        """Record the interval that ends with this step."""
        config, state = self.config, self.state
        self._finite.check()
        self.clocks.lap("train", drain=True)
        fields: dict[str, Any] = {"step": state.step, "images": state.images}
        images = self._interval.steps * config.train.global_batch
        fields |= self._interval.close(images=images, tensor=1)
        fields |= {"lr": config.optimizer.lr, "grad_norm": norm.item()}
        if self.ranks.device.type == "cuda":
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(self.ranks.device) / 1e9
        self.arrivals.write(state.step)
        self.journal.step(fields | self.clocks.fields(), steps=config.train.steps)

    def _save(self) -> None:
        """Save the LoRA as files that others read, and all that a resume needs."""
        self._check_ranks_agree()
        if self.ranks.rank == 0:
            self._save_lora()
        self.saver.save(self.state)
        self._saved_at = self.state.step
        self.clocks.lap("save", drain=True)
        for saved in self.saver.finished():
            self.journal.event("saved", step=saved.step, images=saved.images)

    def _save_lora(self) -> None:
        name = f"step-{self.state.step:09d}"
        note = {"run": self.run.name, "step": str(self.state.step)}
        with self.average.in_place():
            save_lora(self.weights, self.run.lora / f"{name}.safetensors", note=note)
        if self.average.average:
            save_lora(self.weights, self.run.lora / "raw" / f"{name}.safetensors", note=note)
        for folder in (self.run.lora, self.run.lora / "raw"):
            for old in sorted(folder.glob("step-*.safetensors"))[: -self.config.checkpoint.keep]:
                old.unlink()

    def _look(self) -> None:
        """Record the loss on the fixed strata and draw the samples that are due."""
        at = {"step": self.state.step, "images": self.state.images}
        with self.average.in_place():
            judged = self.judging.loss_at(self.state.step)
            self.clocks.lap("eval", drain=True)
            if judged is not None:
                self.journal.evaluation(at | judged.fields())
                self.journal.event("evaluated", **at)
            drawn = self.judging.draw_at(self.state.step)
        self.clocks.lap("sample", drain=True)
        if drawn:
            self.journal.evaluation(at | drawn)

    def _check_ranks_agree(self) -> None:
        """Ranks that hold other weights than rank 0 would train LoRAs of their own."""
        digest = hashlib.sha256()
        for tensor in self.weights.to_save().values():
            digest.update(tensor.numpy().tobytes())
        mine = digest.hexdigest()
        log.info("lora after step %d: %s", self.state.step, mine[:16])
        if len(set(from_every_rank(mine))) > 1:
            raise RunFailure("crash", f"ranks hold different weights at step {self.state.step}")
