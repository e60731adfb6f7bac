"""Token routing: in training, a fixed number of patches skips the middle blocks.

After these blocks they are put back as they were before (TREAD, Krause et al. 2025).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from configs.schema import Pretrain


def token_positions(keep: Tensor, *, prefix: int) -> Tensor:
    """Return the positions `[B, prefix + K]` of `prefix` tokens and of the patches `keep`."""
    first = torch.arange(prefix, device=keep.device).expand(len(keep), -1)
    return torch.cat([first, keep + prefix], dim=1)


def put_back(tokens: Tensor, dense: Tensor, positions: Tensor) -> Tensor:
    """Return `dense` `[B, T, d]` with the routed `tokens` `[B, K, d]` at their positions."""
    index = positions.unsqueeze(-1).expand_as(tokens)
    return dense.to(tokens.dtype).scatter(1, index, tokens)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Return `[B, K, d]`, the rows `positions` `[B, K]` of each of `x` `[B, T, d]`."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def routed(network: Callable[..., Any], keep: Tensor | None = None) -> Callable[..., Any]:
    """Return the network with only the patches `keep` `[B, K]` in its routed blocks."""
    if keep is None:
        return network
    return lambda x, t, label, taps=(): network(x, t, label, taps, keep)


def first_patches(config: Pretrain, images: int, device: torch.device) -> Tensor | None:
    """Return a `keep` `[images, K]` as in training, or None without routing."""
    if config.model.routing.kind == "none":
        return None
    kept = config.model.routing.kept((config.data.size // config.model.patch) ** 2)
    return torch.arange(kept, device=device).repeat(images, 1)
