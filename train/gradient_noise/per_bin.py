"""The whole model's noise bin by bin while training: extra microbatches of one bin each."""

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
from train.diffusion.objective import time_shift
from train.diffusion.timesteps import Bins, Density
from train.engine.distributed import Ranks, data_rank
from train.engine.gradients import squared_gradient_norm
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import GradientHook
from train.gradient_noise.microbatches import NoiseMicrobatches, binned_times

_NAMES = ("small", "big", "products", "pairs", "squares", "counts")


class WholeModelNoise:
    """Measures every bin by microbatches as large as the training's, one or two per rank.

    What it computes leaves no trace in the run: no gradient stays, and its draws are its own.
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
        self._each = 1 if layout.data_ranks > 1 else 2
        self._count = self._each * layout.data_ranks
        self._bins = Bins(count=config.gns.bins)
        density = Density(objective=config.objective, shift=time_shift(config))
        self._weights = self._bins.weights(density).tolist()
        whole = Bins(count=1)
        self._times = [binned_times(config, self._bins, k) for k in range(self._bins.count)]
        self._times.append(binned_times(config, whole, 0))
        self._probe = NoiseMicrobatches(
            source=source, config=config, images=layout.micro_batch, seed=config.seed
        )

    def measure(self, step: int, *, scale: float) -> dict[str, Any] | None:
        """Squared norms of every bin's samples, and of all t; None where one is not finite.

        Beside them stand the sums of the Gram matrices of the adaLN layers for the same images.
        All ranks ask. A bin that no time falls into has no samples. `scale` is that of fp16's
        losses.
        """
        repeats, groups = self._config.gns.whole_repeats, [*self._weights, 1.0]
        found = torch.zeros(6, len(groups), repeats, dtype=torch.float64, device=self._device)
        for k, weight in enumerate(groups):
            for repeat in range(repeats if weight > 0 else 0):
                first = (k * repeats + repeat) * self._count
                found[:, k, repeat] = self._sample(k, step, first, scale)
        dist.all_reduce(found)
        found[0] /= self._count
        found[1] /= dist.get_world_size()  # every rank has the same
        if not torch.isfinite(found).all():
            return None
        rows = {
            name: [row if weight > 0 else [] for weight, row in zip(groups, part, strict=True)]
            for name, part in zip(_NAMES, found.tolist(), strict=True)
        }
        everything = {name: part.pop() for name, part in rows.items()}
        at = {"k": self._count, "b": self._probe.images, "weights": self._weights}
        return at | rows | {"all": everything}

    def _sample(self, k: int, step: int, first: int, scale: float) -> torch.Tensor:
        """What this rank's microbatches, from number `first` on, add to a sample, by `_NAMES`."""
        if isinstance(self._model, FSDPModule):
            self._model.set_requires_gradient_sync(True)
        for turn in range(self._each):
            number = first + turn * self._data_ranks + self._rank
            batch = self._probe.batch(self._times[k], step=step, number=number).to(self._device)
            self._gram.before_forward()
            losses = self._losses(batch)
            (losses.mean() * (scale / self._each)).backward()
            self._hook.after_backward()
            self._gram.after_backward(batch.t, None, factor=scale / self._each / len(losses))
        self._hook.restore_gradients()
        norms = torch.stack(
            [self._hook.take_squares() * self._each**2, squared_gradient_norm(self._network)]
        )
        for parameter in self._network.parameters():
            parameter.grad = None
        return torch.cat([norms / scale**2, self._gram.over_all_bins(self._gram.take())])
