"""Measure the noise of the whole model bin by bin while training, on extra microbatches."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.data.source import Source
from train.diffusion.timesteps import Bins
from train.engine.distributed import Ranks, data_rank, sum_over_ranks
from train.engine.gradients import squared_gradient_norm
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import GradientHook
from train.gradient_noise.microbatches import NoiseMicrobatches, bin_weights, binned_times

_NAMES = ("small", "big", "products", "pairs", "squares", "counts")


class WholeModelNoise:
    """Measures every bin with microbatches as large as those of training, one or two per rank.

    A measurement leaves no trace in the run: it keeps no gradient and has its own random numbers.
    """

    def __init__(
        self,
        source: Source,
        config: Pretrain,
        *,
        model: nn.Module,
        network: nn.Module,
        losses: Callable[[Microbatch], Tensor],
        layout: BatchLayout,
        ranks: Ranks,
        hook: GradientHook,
        gram: AdalnGram,
    ) -> None:
        assert config.gns.bins is not None
        self._config, self._hook, self._gram = config, hook, gram
        self._device = ranks.device
        self._model, self._network, self._losses = model, network, losses
        self._rank, self._data_ranks = data_rank(ranks, layout), layout.data_ranks
        self._per_rank = 1 if layout.data_ranks > 1 else 2
        self._count = self._per_rank * layout.data_ranks
        bins = Bins(count=config.gns.bins)
        self._weights = bin_weights(config, bins)
        self._times = [binned_times(config, bins, k) for k in range(bins.count)]
        self._times.append(binned_times(config, Bins(count=1), 0))
        self._microbatches = NoiseMicrobatches(
            source=source, config=config, images=layout.micro_batch, seed=config.seed
        )

    def measure(self, step: int, *, scale: float) -> dict[str, Any] | None:
        """Return the squared norms of every bin's samples and of all t, or None if not finite.

        The fields include the sums of the Gram matrices of the adaLN layers for the same images.
        A bin without any density has no samples. `scale` is the loss scale of fp16. Collective:
        every rank must call this.
        """
        repeats, groups = self._config.gns.whole_repeats, [*self._weights, 1.0]
        found = torch.zeros(6, len(groups), repeats, dtype=torch.float64, device=self._device)
        for k, weight in enumerate(groups):
            for repeat in range(repeats if weight > 0 else 0):
                first = (k * repeats + repeat) * self._count
                found[:, k, repeat] = self._sample(k, step, first, scale)
        found = sum_over_ranks(found)
        found[0] /= self._count
        found[1] /= dist.get_world_size()  # equal on every rank
        if not torch.isfinite(found).all():
            return None
        rows = {
            name: [row if weight > 0 else [] for weight, row in zip(groups, part, strict=True)]
            for name, part in zip(_NAMES, found.tolist(), strict=True)
        }
        all_t = {name: part.pop() for name, part in rows.items()}
        at = {"k": self._count, "b": self._microbatches.images, "weights": self._weights}
        return at | rows | {"all": all_t}

    def _sample(self, k: int, step: int, first: int, scale: float) -> torch.Tensor:
        """Return this rank's part `[6]`, by `_NAMES`, of a sample from microbatch `first` on."""
        if isinstance(self._model, FSDPModule):
            self._model.set_requires_gradient_sync(True)
        for turn in range(self._per_rank):
            number = first + turn * self._data_ranks + self._rank
            batch = self._microbatches.batch(self._times[k], step=step, number=number)
            batch = batch.to(self._device)
            self._gram.before_forward()
            losses = self._losses(batch)
            (losses.mean() * (scale / self._per_rank)).backward()
            self._hook.after_backward()
            self._gram.after_backward(batch.t, None, factor=scale / self._per_rank / len(losses))
        self._hook.restore_gradients()
        small = self._hook.take_squares() * self._per_rank**2
        norms = torch.stack([small, squared_gradient_norm(self._network)]) / scale**2
        for parameter in self._network.parameters():
            parameter.grad = None
        return torch.cat([norms, self._gram.over_all_bins(self._gram.take())])
