"""The noise of the gradients of every training step."""

import torch

from train.engine.distributed import sum_over_ranks
from train.engine.part import Fields, Part
from train.gradient_noise.hooks import make_hook
from train.parts import Pretraining
from train.pretrain.train_state import GradientSummary


def make(training: Pretraining) -> Part | None:
    """Return the part of `gns`, if it is on."""
    return OnlineNoise(training) if training.attempt.config.gns.enabled else None


class OnlineNoise(Part):
    """Sums |g_k|^2 and |g|^2 over the steps of an interval; the ranks add up theirs at its end."""

    order = 40

    def __init__(self, training: Pretraining) -> None:
        state, device = training.train_state, training.attempt.ranks.device
        self._layout = training.context.layout
        self._hook = make_hook(state.model, state.network)
        self._norms = torch.zeros(2, dtype=torch.float64, device=device)
        self._steps = 0

    def begin(self) -> None:
        """Forget the backward passes whose gradients were thrown away."""
        self._hook.take_squares()

    def after_microbatch(self) -> None:
        """Read the gradients of a microbatch."""
        self._hook.after_backward()

    def after_backward(self) -> None:
        """Make the sum of the gradients available to the optimizer."""
        self._hook.restore_gradients()

    def after_update(self, step: int, result: GradientSummary) -> None:
        """Add the step."""
        # On one rank the gradient of a microbatch is its part of the mean over the step.
        parts = self._layout.accumulation if self._layout.data_ranks == 1 else 1
        small = self._hook.take_squares() * (parts**2 / self._layout.noise_count)
        self._norms += torch.stack([small, result.squared_norm])
        self._steps += 1

    def fields(self) -> Fields:
        """Return the means over the steps of the interval as record fields, and reset them.

        This waits for the device. Collective: every rank must call it.
        """
        small, big = sum_over_ranks(self._norms).tolist()
        steps, self._steps = self._steps, 0
        self._norms.zero_()
        noise = {
            "k": self._layout.noise_count,
            "b": self._layout.noise_batch,
            "steps": steps,
            "small": small / steps,
            "big": big / steps / self._layout.world,  # equal on every rank
        }
        return {"gns": noise}
