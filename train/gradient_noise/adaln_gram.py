"""Compare the per-image gradients of the adaLN layers, bin by bin, from one ordinary backward pass.

An adaLN layer sees one vector c_i per image. The gradient of its weight for image i is therefore
the outer product d_i c_i^T, and that of its bias is d_i, where d_i is the gradient of its output.
All inner products of the images' gradients are (D D^T) o (C C^T + 1). Every layer sees the same C.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from train.diffusion.timesteps import Bins, bin_indices

SUMS = ("products", "pairs", "squares", "counts")


class AdalnGram:
    """Sums of the Gram matrices of a network's adaLN layers, by bins of t, in float64.

    `sums` is `[4 bins + 2]`. For each bin: the products of different images, their number, the
    squares, and the number of images. Then, over all images: the weighted products of different
    images, and their number.
    """

    def __init__(self, network: nn.Module, *, bins: Bins, device: torch.device) -> None:
        self._count = bins.count
        self._edges = torch.from_numpy(bins.edges).to(device)
        self.sums = torch.zeros(4 * bins.count + 2, dtype=torch.float64, device=device)
        self._is_recording = False
        self._condition: Tensor | None = None
        self._gradients: list[Tensor] = []
        for layer in _adaln_layers(network):
            layer.register_forward_hook(torch.compiler.disable(self._record))

    def before_forward(self) -> None:
        """Record the next forward and backward pass."""
        self._is_recording, self._condition, self._gradients = True, None, []

    def after_backward(self, t: Tensor, weight: Tensor | None, *, factor: float | Tensor) -> None:
        """Add the recorded microbatch of times `t` `[m]`.

        Each of its losses was multiplied by `factor` and, if given, by its `weight` `[m]`. The
        sums by bin are free of both, those over all images of `factor` only.
        """
        assert self._condition is not None
        # The order of the layers does not matter: the products sum over all of them.
        d = torch.cat([gradient.float() for gradient in self._gradients], dim=1) / factor
        c = self._condition.float()
        self._is_recording, self._condition, self._gradients = False, None, []
        self.sums += self._sums_of((d @ d.T) * (c @ c.T + 1), t, weight)

    def take(self) -> Tensor:
        """Return `sums` since the last call and reset them."""
        taken = self.sums.clone()
        self.sums.zero_()
        return taken

    def _sums_of(self, gram: Tensor, t: Tensor, weight: Tensor | None) -> Tensor:
        """Return the sums of one microbatch with Gram matrix `gram` `[m, m]`."""
        squares = gram.diagonal().clone()
        gram.fill_diagonal_(0)
        images = len(gram)
        whole = torch.stack([gram.sum(), gram.new_full((), images * (images - 1))])
        if weight is not None:
            squares, gram = squares / weight.square(), gram / torch.outer(weight, weight)
        mask = nn.functional.one_hot(bin_indices(t, self._edges), self._count).to(gram)
        counts = mask.sum(0)
        parts = [((gram @ mask) * mask).sum(0), counts * (counts - 1), squares @ mask, counts]
        return torch.cat([*parts, whole]).double()

    def _record(self, layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        # A recomputed block calls this again in its backward pass, but then no gradient arrives.
        if self._is_recording and output.requires_grad:
            self._condition = inputs[0].detach()
            output.register_hook(self._gradients.append)


def has_adaln(network: nn.Module) -> bool:
    """Return whether a network has adaLN layers."""
    return hasattr(network, "modulation_out")


def _adaln_layers(network: nn.Module) -> list[nn.Module]:
    blocks = [cast(nn.Module, block.modulation) for block in cast(Any, network).blocks]
    return [*blocks, cast(nn.Module, network.modulation_out)]
