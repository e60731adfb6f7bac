"""The exponential moving average (EMA) of the weights, which samples are drawn from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from train.engine.clocks import region
from train.engine.gradients import local_part
from train.engine.part import Part


class EMA(Part):
    """An average of every parameter, or of this rank's shard of it.

    With `decay=None` no average is kept: `weights` is empty and the model's own weights are used.
    """

    def __init__(self, model: nn.Module, *, decay: float | None, warmup: bool) -> None:
        self._decay, self._warmup = decay, warmup
        self._sharded = [part for part in model.modules() if isinstance(part, FSDPModule)]
        named = dict(model.named_parameters())
        self._live: list[Tensor] = [*named.values()] if decay is not None else []
        kept = named if decay is not None else {}
        self.weights = {name: parameter.detach().clone() for name, parameter in kept.items()}

    def state(self) -> dict[str, Any]:
        """Return the averaged weights by name."""
        return {"average": self.weights}

    def after_update(self, step: int, result: Any) -> None:
        """Update the average."""
        with region("ema"):
            self.update(step)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the model's weights after optimizer step `step` (from 1)."""
        if self._decay is None:
            return
        decay = min(self._decay, (1 + step) / (10 + step)) if self._warmup else self._decay
        kept, live = (list(map(local_part, some)) for some in (self.weights.values(), self._live))
        torch._foreach_lerp_(kept, live, 1 - decay)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Give the model the averaged weights inside the `with`, and its own again after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for part in self._sharded:
            # Parameters that are still gathered from a forward pass would be used as they are.
            part.reshard()
        for average, live in zip(self.weights.values(), self._live, strict=False):
            held: Tensor = live.clone()
            live.copy_(average)
            average.copy_(held)
