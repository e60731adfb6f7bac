"""The probe of gradient noise: it observes backward passes, and samples them at will.

Training, the bins of the whole model and saved checkpoints share it: each runs backward passes of
single microbatches and takes the sums.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from train.data.loader import Microbatch
from train.diffusion.timesteps import Bins
from train.engine.gradients import squared_gradient_norm, sum_gradients
from train.gradient_noise.adaln_gram import SUMS, AdalnGram
from train.gradient_noise.hooks import AccumulationHook, make_hook

# What a sample consists of: |g_k|^2, |g|^2, and the sums of the Gram matrices.
SAMPLE = ("small", "big", *SUMS)


class Probe:
    """Observes the gradients of `model`, which is `network` in its parallel wrapping.

    Without `bins` it does not observe the adaLN layers.
    """

    def __init__(
        self, model: nn.Module, network: nn.Module, *, bins: Bins | None, device: torch.device
    ) -> None:
        self._model, self._network = model, network
        self.hook = make_hook(model, network)
        self.gram = AdalnGram(network, bins=bins, device=device) if bins is not None else None

    def before_forward(self) -> None:
        """Observe the next forward and backward pass."""
        if self.gram:
            self.gram.before_forward()

    def after_backward(self, batch: Microbatch, *, factor: float | Tensor) -> None:
        """Add a microbatch whose losses were multiplied by `factor`, and by their weights."""
        self.hook.after_backward()
        if self.gram:
            self.gram.after_backward(batch.t, batch.weight, factor=factor)

    def take_grams(self) -> Tensor:
        """Return the sums of the Gram matrices since the last call, and reset them."""
        return self.gram.take() if self.gram else torch.zeros(0, dtype=torch.float64)

    def sample(
        self,
        batches: Iterable[Microbatch],
        losses: Callable[[Microbatch], Tensor],
        *,
        summed: int,
        scale: float = 1.0,
    ) -> Tensor:
        """Return this rank's part of a sample of microbatches, `[6]` by `SAMPLE` (or `[2]`).

        `small` is the sum of the squared norms of this rank's microbatches. `big` is the squared
        norm of the mean gradient, the same on every rank: a rank has the gradients of `summed`
        microbatches in sum, those of a wrapped model averaged over its ranks. Losses are multiplied
        by `scale`, the loss scale of fp16. No gradient is left. Collective.
        """
        if isinstance(self._model, FSDPModule):
            self._model.set_requires_gradient_sync(True)
        for batch in batches:
            self.before_forward()
            each = losses(batch)
            # In fp16 the sum over microbatches would overflow sooner than their mean.
            (each.mean() * (scale / summed)).backward()
            self.after_backward(batch, factor=scale / summed / len(each))
        self.hook.restore_gradients()
        if isinstance(self.hook, AccumulationHook):
            sum_gradients(self._network)
        norms = [self.hook.take_squares() * summed**2, squared_gradient_norm(self._network)]
        for parameter in self._network.parameters():
            parameter.grad = None
        grams = [self.gram.over_all_bins(self.gram.take())] if self.gram else []
        return torch.cat([torch.stack(norms) / scale**2, *grams])
