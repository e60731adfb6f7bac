"""The noise of the gradients of every training step, and that of the whole model bin by bin.

The bins of the whole model are measured on extra microbatches, as large as those of training, one
or two per rank. They leave no trace in the run: no gradient, and random numbers of their own.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from train.data.loader import Microbatch
from train.diffusion.timesteps import Bins
from train.engine.distributed import data_rank, sum_over_ranks
from train.engine.metrics import log
from train.engine.part import Fields, Part
from train.gradient_noise.adaln_gram import SUMS
from train.gradient_noise.microbatches import (
    NoiseMicrobatches,
    Times,
    bin_weights,
    binned_times,
)
from train.gradient_noise.probe import SAMPLE, Probe
from train.parts import Pretraining
from train.pretrain.train_state import GradientSummary


def make(training: Pretraining) -> Part | None:
    """Return the part of `gns`, if it is on."""
    return OnlineNoise(training) if training.attempt.config.gns.enabled else None


class OnlineNoise(Part):
    """Sums |g_k|^2, |g|^2 and the Gram matrices by bins over the steps of an interval.

    A step that is skipped because its gradients overflowed fp16 is left out here too. The ranks
    add up their sums at the end of an interval. Every `gns.whole_every` steps it also measures the
    whole model, bin by bin.
    """

    order = 40

    def __init__(self, training: Pretraining) -> None:
        self._config, self._state = training.attempt.config, training.train_state
        self._layout, self._device = training.context.layout, training.attempt.ranks.device
        self._rank = data_rank(training.attempt.ranks, self._layout)
        self.every, count = self._config.gns.whole_every, self._config.gns.bins
        bins = Bins(count=count) if count is not None else None
        self._weights = bin_weights(self._config, bins) if bins else []
        self._probe = Probe(self._state.model, self._state.network, bins=bins, device=self._device)
        self._microbatches = NoiseMicrobatches(
            source=training.images,
            config=self._config,
            images=self._layout.micro_batch,
            seed=self._config.seed,
        )
        self._norms = torch.zeros(3, dtype=torch.float64, device=self._device)
        self._grams = torch.zeros_like(self._probe.take_grams(), device=self._device)
        self._steps = 0

    def begin(self) -> None:
        """Forget the backward passes whose gradients were thrown away."""
        self._probe.hook.take_squares()

    def before_microbatch(self) -> None:
        """Observe the layers in the forward pass."""
        self._probe.before_forward()

    def after_microbatch(self, batch: Microbatch, factor: float | Tensor) -> None:
        """Add a microbatch whose losses were multiplied by `factor` (and by their weights)."""
        self._probe.after_backward(batch, factor=factor)

    def after_backward(self) -> None:
        """Make the sum of the gradients available to the optimizer."""
        self._probe.hook.restore_gradients()

    def after_update(self, step: int, result: GradientSummary) -> None:
        """Add the step, unless its gradients overflowed; they are multiplied by a loss scale."""
        small, scale = self._probe.hook.take_squares(), result.scale.double()
        # On one rank the gradient of a microbatch is its part of the mean over the step.
        parts = self._layout.accumulation if self._layout.data_ranks == 1 else 1
        factor = (parts / scale) ** 2 / self._layout.noise_count
        norms = small * factor, result.squared_norm / scale**2
        found = torch.stack([*norms, torch.ones_like(small)])
        counted = result.norm.isfinite()
        self._norms += torch.where(counted, found, 0.0)
        self._grams += torch.where(counted, self._probe.take_grams().to(self._device), 0.0)
        self._steps += 1

    def fields(self) -> Fields:
        """Return the means over the steps of the interval as record fields, and reset them.

        This waits for the device. Collective: every rank must call it.
        """
        sums = sum_over_ranks(torch.cat([self._norms, self._grams])).tolist()
        steps = round(sums[2] / self._layout.world)  # equal on every rank
        skipped, self._steps = self._steps - steps, 0
        self._norms.zero_()
        self._grams.zero_()
        if not steps:
            return {}
        found: Fields = {
            "k": self._layout.noise_count,
            "b": self._layout.noise_batch,
            "steps": steps,
            "small": sums[0] / steps,
            "big": sums[1] / steps / self._layout.world,  # equal on every rank
        }
        if skipped:
            found["skipped"] = skipped
        if self._weights:
            *parts, products, pairs = sums[3:]
            n = len(self._weights)
            bins = {name: parts[k * n : (k + 1) * n] for k, name in enumerate(SUMS)}
            found["bins"] = {"weights": self._weights} | bins
            found["adaln"] = {"products": products, "pairs": pairs}
        return {"gns": found}

    def after(self, step: int) -> Fields | None:
        """Measure the whole model and, for the same images, its adaLN layers.

        The fields have a list of samples for every bin, which is empty if the bin has no density,
        and for all of t.
        """
        bins, repeats = Bins(count=len(self._weights)), self._config.gns.whole_repeats
        times = [binned_times(self._config, bins, k) for k in range(bins.count)]
        times.append(binned_times(self._config, Bins(count=1), 0))
        weights = [*self._weights, 1.0]
        found = torch.zeros(len(SAMPLE), len(times), repeats, dtype=torch.float64)
        found = found.to(self._device)
        for k, weight in enumerate(weights):
            for repeat in range(repeats if weight > 0 else 0):
                found[:, k, repeat] = self._sample(times[k], step, k * repeats + repeat)
        found = sum_over_ranks(found)
        found[0] /= self._count
        found[1] /= dist.get_world_size()  # equal on every rank
        if not torch.isfinite(found).all():
            log.warning("step %d: a gradient norm is not finite; noise not recorded", step)
            return None
        rows = {
            name: [row if weight > 0 else [] for weight, row in zip(weights, part, strict=True)]
            for name, part in zip(SAMPLE, found.tolist(), strict=True)
        }
        all_t = {name: part.pop() for name, part in rows.items()}
        at = {"k": self._count, "b": self._microbatches.images, "weights": self._weights}
        return {"gns_whole": at | rows | {"all": all_t}}

    @property
    def _per_rank(self) -> int:
        """The microbatches of a sample on each data rank."""
        return 1 if self._layout.data_ranks > 1 else 2

    @property
    def _count(self) -> int:
        return self._per_rank * self._layout.data_ranks

    def _sample(self, times: Times, step: int, number: int) -> Tensor:
        """Return this rank's part of sample `number` at a step."""
        scale = self._state.scaler.scale.item()
        batches = self._drawn(times, step, number * self._count)
        return self._probe.sample(batches, self._state.losses, summed=self._per_rank, scale=scale)

    def _drawn(self, times: Times, step: int, first: int) -> Iterator[Microbatch]:
        for turn in range(self._per_rank):
            number = first + turn * self._layout.data_ranks + self._rank
            batch = self._microbatches.batch(times, step=step, number=number)
            yield batch.to(self._device)
