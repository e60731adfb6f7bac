"""The exponential moving average of the weights, which samples are drawn from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from configs.schema.training import Train


class EMA:
    """An average of every parameter; of sharded parameters, of the shard of this rank.

    With decay None there is no average: `average` is empty, and the weights stand for it.
    """

    def __init__(self, model: nn.Module, *, decay: float | None, warmup: bool) -> None:
        self._decay, self._warmup = decay, warmup
        self._sharded = [part for part in model.modules() if isinstance(part, FSDPModule)]
        named = dict(model.named_parameters()) if decay is not None else {}
        self._live: list[Tensor] = list(named.values())
        self.average = {name: parameter.detach().clone() for name, parameter in named.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights after optimizer step `step` (from 1)."""
        if self._decay is None:
            return
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
        for part in self._sharded:
            # What is still gathered from a forward pass would be used again as it is.
            part.reshard()
        for mine, live in zip(self.average.values(), self._live, strict=True):
            held: Tensor = live.clone()
            live.copy_(mine)
            mine.copy_(held)


def batch_decay(config: Train) -> float | None:
    """The decay per step; of `ema_decay` at batch `ema_batch`, decay^(global_batch / ema_batch)."""
    if config.ema_decay is None or config.ema_batch is None:
        return config.ema_decay
    return float(config.ema_decay ** (config.global_batch / config.ema_batch))
