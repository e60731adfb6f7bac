"""The probe of gradient noise: it observes the backward passes of single microbatches.

Training and the measurement of saved checkpoints share it.
"""

import torch
from torch import Tensor, nn

from train.data.loader import Microbatch
from train.diffusion.timesteps import Bins
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import make_hook


class Probe:
    """Observes the gradients of `model`, which is `network` in its parallel wrapping.

    Without `bins` it does not observe the adaLN layers.
    """

    def __init__(
        self, model: nn.Module, network: nn.Module, *, bins: Bins | None, device: torch.device
    ) -> None:
        self._hook = make_hook(model, network)
        self._gram = AdalnGram(network, bins=bins, device=device) if bins is not None else None

    def before_microbatch(self) -> None:
        """Observe the next forward and backward pass."""
        if self._gram:
            self._gram.before_forward()

    def after_microbatch(self, batch: Microbatch, *, factor: float | Tensor) -> None:
        """Add a microbatch whose losses were multiplied by `factor`, and by their weights."""
        self._hook.after_backward()
        if self._gram:
            self._gram.after_backward(batch.t, batch.weight, factor=factor)

    def after_backward(self) -> None:
        """Make the sum of the gradients available; call this after the last microbatch."""
        self._hook.restore_gradients()

    def take(self) -> tuple[Tensor, Tensor]:
        """Return the sums since the last call, and reset them.

        They are this rank's sum of |g_k|^2, and the sums of the Gram matrices: those of
        `AdalnGram`, none without bins.
        """
        squares = self._hook.take_squares()
        return squares, self._gram.take() if self._gram else squares.new_zeros(0)
