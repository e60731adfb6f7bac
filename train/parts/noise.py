"""The noise of the gradients of every training step, and that of the adaLN layers by bins of t."""

import torch
from torch import Tensor

from train.data.loader import Microbatch
from train.diffusion.objective import time_shift
from train.diffusion.timesteps import Bins, Density
from train.engine.distributed import sum_over_ranks
from train.engine.part import Fields, Part
from train.gradient_noise.adaln_gram import SUMS
from train.gradient_noise.probe import Probe
from train.parts import Pretraining
from train.pretrain.train_state import GradientSummary


def make(training: Pretraining) -> Part | None:
    """Return the part of `gns`, if it is on."""
    return OnlineNoise(training) if training.attempt.config.gns.enabled else None


class OnlineNoise(Part):
    """Sums |g_k|^2, |g|^2 and the Gram matrices by bins over the steps of an interval.

    A step that is skipped because its gradients overflowed fp16 is left out here too. The ranks
    add up their sums at the end of an interval.
    """

    order = 40

    def __init__(self, training: Pretraining) -> None:
        config, state = training.attempt.config, training.train_state
        self._layout, device = training.context.layout, training.attempt.ranks.device
        bins = Bins(count=config.gns.bins) if config.gns.bins is not None else None
        density = Density(objective=config.objective, shift=time_shift(config))
        self._weights = bins.weights(density).tolist() if bins else []
        self._probe = Probe(state.model, state.network, bins=bins, device=device)
        self._norms = torch.zeros(3, dtype=torch.float64, device=device)
        self._grams = torch.zeros_like(self._probe.take()[1])
        self._steps = 0

    def begin(self) -> None:
        """Forget the backward passes whose gradients were thrown away."""
        self._probe.take()

    def before_microbatch(self) -> None:
        """Observe the layers in the forward pass."""
        self._probe.before_microbatch()

    def after_microbatch(self, batch: Microbatch, factor: float | Tensor) -> None:
        """Add a microbatch whose losses were multiplied by `factor` (and by their weights)."""
        self._probe.after_microbatch(batch, factor=factor)

    def after_backward(self) -> None:
        """Make the sum of the gradients available to the optimizer."""
        self._probe.after_backward()

    def after_update(self, step: int, result: GradientSummary) -> None:
        """Add the step, unless its gradients overflowed; they are multiplied by a loss scale."""
        small, grams = self._probe.take()
        scale = result.scale.double()
        # On one rank the gradient of a microbatch is its part of the mean over the step.
        parts = self._layout.accumulation if self._layout.data_ranks == 1 else 1
        factor = (parts / scale) ** 2 / self._layout.noise_count
        norms = small * factor, result.squared_norm / scale**2
        found = torch.stack([*norms, torch.ones_like(small)])
        counted = result.norm.isfinite()
        self._norms += torch.where(counted, found, 0.0)
        self._grams += torch.where(counted, grams, 0.0)
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
