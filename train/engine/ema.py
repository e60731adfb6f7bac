"""Averages of the weights: the exponential one (EMA), which samples are drawn from, and powers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from configs.schema import Pretrain

# The exponents of power-function averages whose relative widths are 0.05 and 0.1 (Karras et al.
# 2024, arXiv 2312.02696, equation 123).
GAMMAS = (16.972199, 6.937204)


class EMA:
    """An average of every parameter, or of this rank's shard of it.

    With `decay=None` no average is kept: `weights` is empty and the model's own weights are used.
    With `decay=1` it is kept, but the optimizer moves it. With `powers`, `power_averages` has two
    more, in which step t has a weight of t^gamma, for each of `GAMMAS`.
    """

    def __init__(
        self, model: nn.Module, *, decay: float | None, warmup: bool, powers: bool = False
    ) -> None:
        self._decay, self._warmup = decay, warmup
        self._sharded = [part for part in model.modules() if isinstance(part, FSDPModule)]
        named = dict(model.named_parameters())
        self._live: list[Tensor] = list(named.values())
        self.weights = _copies(named) if decay is not None else {}
        self.power_averages = [_copies(named) for _ in GAMMAS if powers]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the averages towards the model's weights after optimizer step `step` (from 1)."""
        for gamma, average in zip(GAMMAS, self.power_averages, strict=False):
            share = 1 - (1 - 1 / step) ** (gamma + 1)
            torch._foreach_lerp_(list(average.values()), self._live, share)
        if self._decay is None or self._decay == 1:
            return
        decay = min(self._decay, (1 + step) / (10 + step)) if self._warmup else self._decay
        torch._foreach_lerp_(list(self.weights.values()), self._live, 1 - decay)

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


def _copies(named: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in named.items()}


def batch_decay(config: Pretrain) -> float | None:
    """Return the decay per step: ema_decay^(global_batch / ema_batch) if `ema_batch` is set."""
    train = config.train
    if config.optimizer.kind == "schedule_free":
        return 1.0
    if train.ema_decay is None or train.ema_batch is None:
        return train.ema_decay
    return float(train.ema_decay ** (train.global_batch / train.ema_batch))
