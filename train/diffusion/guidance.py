"""A network's word for a label, sharpened against its word for none."""

from collections.abc import Callable

import torch
from torch import Tensor

Denoiser = Callable[[Tensor, Tensor, Tensor], Tensor]


def guided(
    network: Denoiser, x: Tensor, t: Tensor, label: Tensor, *, null_label: int, guidance: float
) -> Tensor:
    """The output in float32, none + guidance (label - none) (Ho & Salimans 2022).

    `x` `[B, C, H, W]`, `t`, `label` `[B]`.
    """
    if guidance == 1:
        return network(x, t, label).float()
    null = torch.full_like(label, null_label)
    both = network(torch.cat([x, x]), torch.cat([t, t]), torch.cat([label, null]))
    wanted, free = both.float().chunk(2)
    return torch.lerp(free, wanted, guidance)
