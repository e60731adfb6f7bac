"""Measure the noise of the gradients of every training step; report it once per interval."""

from typing import Any

import torch
from torch import Tensor

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.diffusion.timesteps import Bins
from train.engine.distributed import sum_over_ranks
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import GradientHook
from train.gradient_noise.microbatches import bin_weights
from train.gradient_noise.per_bin import WholeModelNoise


class OnlineNoise:
    """Sums |g_k|^2, |g|^2 and the Gram matrices by bins over the steps of an interval.

    A step that is skipped because its gradients overflowed fp16 is left out here too. The ranks
    add up their sums at the end of an interval.
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
            self._weights = bin_weights(config, Bins(count=config.gns.bins))
        self._norms = torch.zeros(3, dtype=torch.float64, device=device)
        self._grams = torch.zeros_like(self._gram.sums) if self._gram else self._norms[:0]
        self._steps = 0

    def discard(self) -> None:
        """Forget a backward pass whose gradients were thrown away."""
        self.hook.take_squares()

    def before_forward(self) -> None:
        """Prepare for the forward pass of a microbatch."""
        if self._gram:
            self._gram.before_forward()

    def after_backward(self, batch: Microbatch, *, factor: float | Tensor) -> None:
        """Add a microbatch whose losses were multiplied by `factor` (and by their weights)."""
        self.hook.after_backward()
        if self._gram:
            self._gram.after_backward(batch.t, batch.weight, factor=factor)

    def finish_step(self, squares: Tensor, *, scale: Tensor, counted: Tensor) -> None:
        """Add a step whose gradient has the squared norm `squares`, unless it is not `counted`.

        The gradients are scaled by `scale`, the loss scale of fp16.
        """
        small = self.hook.take_squares()
        # On one rank the gradient of a microbatch is its part of the mean over the step.
        parts = self._layout.accumulation if self._layout.data_ranks == 1 else 1
        factor = (parts / scale.double()) ** 2 / self._layout.noise_count
        found = torch.stack([small * factor, squares / scale.double() ** 2, torch.ones_like(small)])
        self._norms += torch.where(counted, found, 0.0)
        self._steps += 1
        if self._gram:
            self._grams += torch.where(counted, self._gram.take(), 0.0)

    def fields(self) -> dict[str, Any]:
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
        found: dict[str, Any] = {
            "k": self._layout.noise_count,
            "b": self._layout.noise_batch,
            "steps": steps,
            "small": sums[0] / steps,
            "big": sums[1] / steps / self._layout.world,  # equal on every rank
        }
        if skipped:
            found["skipped"] = skipped
        if self._gram:
            found |= self._gram_fields(sums[3:])
        return {"gns": found}

    def _gram_fields(self, sums: list[float]) -> dict[str, Any]:
        """Return the sums of the Gram matrices by name."""
        *parts, products, pairs = sums
        names = ("products", "pairs", "squares", "counts")
        n = len(parts) // len(names)
        bins = {name: parts[k * n : (k + 1) * n] for k, name in enumerate(names)}
        whole = {"products": products, "pairs": pairs}
        return {"bins": {"weights": self._weights} | bins, "adaln": whole}
