"""The exponential moving average of the weights, which samples are drawn from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """An average of every parameter; of sharded parameters, of the shard of this rank."""

    def __init__(self, model: nn.Module, *, decay: float, warmup: bool) -> None:
        self._decay, self._warmup = decay, warmup
        self._live: list[Tensor] = list(model.parameters())
        self.average = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights after optimizer step `step` (from 1)."""
        decay = min(self._decay, (1 + step) / (10 + step)) if self._warmup else self._decay
        torch._foreach_lerp_(list(self.average.values()), self._live, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model holds the averaged weights inside the `with`, its own after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for mine, live in zip(self.average.values(), self._live, strict=True):
            held: Tensor = live.clone()
            live.copy_(mine)
            mine.copy_(held)
