"""Per-image gradients of the adaLN layers from one ordinary backward, compared bin by bin.

An adaLN layer sees one vector c_i per image, so of image i its weight's gradient is the outer
product d_i c_i^T and its bias's d_i, where d_i is the gradient of its output: all inner products
of images' gradients are (D D^T) o (C C^T + 1). Every layer sees the same C.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from train.diffusion.timesteps import Bins, bin_indices


class AdalnGram:
    """Sums of the Gram matrices of a network's adaLN layers, by bins of t, in float64.

    `sums` is [4 bins + 2]: of each bin the products of different images, how many they are, the
    squares, and the images; then the weighted products of any two images, and how many.
    """

    def __init__(self, network: nn.Module, *, bins: Bins, device: torch.device) -> None:
        self._count = bins.count
        self._edges = torch.from_numpy(bins.edges).to(device)
        self.sums = torch.zeros(4 * bins.count + 2, dtype=torch.float64, device=device)
        self._is_open = False
        self._condition: Tensor | None = None
        self._gradients: list[Tensor] = []
        for layer in _adaln_layers(network):
            layer.register_forward_hook(torch.compiler.disable(self._note))

    def before_forward(self) -> None:
        """The next forward and backward are to be seen."""
        self._is_open, self._condition, self._gradients = True, None, []

    def after_backward(self, t: Tensor, weight: Tensor | None, *, factor: float) -> None:
        """Add the microbatch just seen; `factor` is what each of its losses was multiplied by.

        `t` `[m]`; `weight` `[m]` are weights of the losses beside `factor`, which the bins are
        without.
        """
        assert self._condition is not None
        # A rank's order of layers is of no matter: all are summed over.
        d = torch.cat([gradient.float() for gradient in self._gradients], dim=1) / factor
        c = self._condition.float()
        self._is_open, self._condition, self._gradients = False, None, []
        self.sums += self._summed((d @ d.T) * (c @ c.T + 1), t, weight)

    def take(self) -> Tensor:
        """`sums` since last asked; they begin anew."""
        taken = self.sums.clone()
        self.sums.zero_()
        return taken

    def over_all_bins(self, sums: Tensor) -> Tensor:
        """Of `sums`, the four of all images as if they were of one bin."""
        products, pairs = sums[-2:]
        squares, counts = sums[2 * self._count : -2].view(2, -1).sum(1)
        return torch.stack([products, pairs, squares, counts])

    def _summed(self, gram: Tensor, t: Tensor, weight: Tensor | None) -> Tensor:
        """The sums of one microbatch, whose Gram matrix is `[m, m]`."""
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

    def _note(self, layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        # Where a block is computed again in the backward pass, what it says there gets no gradient.
        if self._is_open and output.requires_grad:
            self._condition = inputs[0].detach()
            output.register_hook(self._gradients.append)


def has_adaln(network: nn.Module) -> bool:
    """Whether a network has adaLN layers to see."""
    return hasattr(network, "modulation_out")


def _adaln_layers(network: nn.Module) -> list[nn.Module]:
    blocks = [cast(nn.Module, block.modulation) for block in cast(Any, network).blocks]
    return [*blocks, cast(nn.Module, network.modulation_out)]
