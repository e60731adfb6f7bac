"""Rectified flow (Liu et al. 2022): the loss, and the ordinary differential equation it solves."""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Network = Callable[[Tensor, Tensor, Tensor], Tensor]


def flow_loss(network: Network, image: Tensor, noise: Tensor, t: Tensor, label: Tensor) -> Tensor:
    """Squared error of the velocity for each image, `[B]` in float32.

    x_t = (1 - t) image + t noise; the target is v = noise - image. `image`, `noise`
    `[B, C, H, W]`, `t`, `label` `[B]`.
    """
    weight = t.view(-1, 1, 1, 1)
    velocity = network(torch.lerp(image, noise, weight), t, label)
    error = F.mse_loss(velocity.float(), noise - image, reduction="none")
    return error.flatten(1).mean(dim=1)


@torch.no_grad()
def euler(
    network: Network, noise: Tensor, label: Tensor, *, null_label: int, steps: int, guidance: float
) -> Tensor:
    """Images from `noise` `[B, C, H, W]` by Euler steps from t = 1 to 0.

    Classifier-free guidance (Ho & Salimans 2022): v = v_null + guidance (v_label - v_null).
    """
    x = noise
    times = torch.linspace(1, 0, steps + 1, device=noise.device)
    null = torch.full_like(label, null_label)
    for now, then in itertools.pairwise(times):
        t = now.expand(len(x))
        if guidance == 1:
            velocity = network(x, t, label).float()
        else:
            both = network(torch.cat([x, x]), torch.cat([t, t]), torch.cat([label, null]))
            wanted, free = both.float().chunk(2)
            velocity = torch.lerp(free, wanted, guidance)
        x = x + (then - now) * velocity
    return x
