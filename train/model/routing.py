"""Token routing: in training, a fixed number of patches skips the middle blocks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from configs.schema import Pretrain


class Router(nn.Module):
    """Takes the kept tokens before the routed blocks, and puts them back after these.

    For `tread` (Krause et al. 2025) the others are those from before the blocks; for `sprint`
    (Park et al. 2025) zeros, and a linear layer fuses all tokens with those from before.
    """

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        self.prefix = config.model.registers
        if config.model.routing.kind == "sprint":
            self.fuse = nn.Linear(2 * config.model.width, config.model.width)

    def positions(self, keep: Tensor) -> Tensor:
        """Return the positions `[B, prefix + K]` of the tokens before the patches and of `keep`."""
        prefix = torch.arange(self.prefix, device=keep.device).expand(len(keep), -1)
        return torch.cat([prefix, keep + self.prefix], dim=1)

    def join(self, tokens: Tensor, dense: Tensor, positions: Tensor | None) -> Tensor:
        """Return all tokens from the routed ones and `dense` `[B, T, d]` from before the blocks."""
        is_sprint = hasattr(self, "fuse")
        if positions is not None:
            index = positions.unsqueeze(-1).expand_as(tokens)
            rest = torch.zeros_like(dense) if is_sprint else dense
            tokens = rest.to(tokens.dtype).scatter(1, index, tokens)
        if is_sprint:
            tokens = self.fuse(torch.cat([tokens, dense.to(tokens.dtype)], dim=-1))
        return tokens


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Return `[B, K, d]`, the rows `positions` `[B, K]` of each of `x` `[B, T, d]`."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def routed(network: Callable[..., Any], keep: Tensor | None = None) -> Callable[..., Any]:
    """Return the network with only the patches `keep` `[B, K]` in its routed blocks."""
    if keep is None:
        return network
    return lambda x, t, label: network(x, t, label, keep)


def first_patches(config: Pretrain, images: int, device: torch.device) -> Tensor | None:
    """Return a `keep` `[images, K]` as in training, or None without routing."""
    if config.model.routing.kind == "none":
        return None
    kept = config.model.routing.kept((config.data.size // config.model.patch) ** 2)
    return torch.arange(kept, device=device).repeat(images, 1)
