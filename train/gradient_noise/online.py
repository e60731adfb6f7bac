"""What a training run learns of its gradients' noise, step by step, and says once an interval."""

from typing import Any

import torch
from torch import Tensor

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.diffusion.objective import time_shift
from train.diffusion.timesteps import Bins, Density
from train.engine.distributed import sum_over_ranks
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import GradientHook
from train.gradient_noise.per_bin import WholeModelNoise


class OnlineNoise:
    """Sums |g_k|^2 and |g|^2 over the steps of an interval, and the Gram matrices by bins.

    A step that is left out, as its gradients overflowed fp16, is left out here too. Ranks sum
    theirs when an interval ends.
    """

    def __init__(
        self,
        config: Pretrain,
        *,
        hook: GradientHook,
        gram: AdalnGram | None,
        whole: WholeModelNoise | None,
        layout: BatchLayout,
        device: torch.device,
    ) -> None:
        self._layout = layout
        self.hook, self.whole = hook, whole
        self._gram = gram
        if config.gns.bins is not None:
            density = Density(objective=config.objective, shift=time_shift(config))
            self._weights = Bins(count=config.gns.bins).weights(density).tolist()
        self._norms = torch.zeros(2, dtype=torch.float64, device=device)
        self._grams = torch.zeros_like(self._gram.sums) if self._gram else self._norms[:0]
        self._steps = self._skipped = 0

    def discard(self) -> None:
        """A backward was thrown away."""
        self.hook.take_squares()

    def before_forward(self) -> None:
        """A microbatch's forward is next."""
        if self._gram:
            self._gram.before_forward()

    def after_backward(self, batch: Microbatch, *, factor: float) -> None:
        """Its backward is over; each loss was multiplied by `factor` (and by its weight)."""
        self.hook.after_backward()
        if self._gram:
            self._gram.after_backward(batch.t, batch.weight, factor=factor)

    def finish_step(self, squares: Tensor, *, scale: float, counted: bool) -> None:
        """All microbatches are summed to a gradient whose squared norm is `squares`.

        Gradients are `scale` times their worth; a step that is not `counted` is forgotten.
        """
        small = self.hook.take_squares()
        if counted:
            # On one rank each microbatch has its part of the mean for its gradient.
            parts = self._layout.accumulation if self._layout.data_ranks == 1 else 1
            factor = (parts / scale) ** 2 / self._layout.noise_count
            self._norms += torch.stack([small * factor, squares / scale**2])
            self._steps += 1
        else:
            self._skipped += 1
        if self._gram:
            sums = self._gram.take()
            if counted:
                self._grams += sums

    def fields(self) -> dict[str, Any]:
        """The interval's means over its steps, for its record; begins anew."""
        steps, skipped = self._steps, self._skipped
        told = sum_over_ranks(torch.cat([self._norms, self._grams])).tolist()
        self._norms.zero_()
        self._grams.zero_()
        self._steps = self._skipped = 0
        if not steps:
            return {}
        found: dict[str, Any] = {
            "k": self._layout.noise_count,
            "b": self._layout.noise_batch,
            "steps": steps,
            "small": told[0] / steps,
            "big": told[1] / steps / self._layout.world,  # every rank has the same
        }
        if skipped:
            found["skipped"] = skipped
        if self._gram:
            found |= self._binned(told[2:])
        return {"gns": found}

    def _binned(self, sums: list[float]) -> dict[str, Any]:
        """The sums of the Gram matrices by name."""
        *parts, products, pairs = sums
        names = ("products", "pairs", "squares", "counts")
        n = len(parts) // len(names)
        bins = {name: parts[k * n : (k + 1) * n] for k, name in enumerate(names)}
        whole = {"products": products, "pairs": pairs}
        return {"bins": {"weights": self._weights} | bins, "adaln": whole}
