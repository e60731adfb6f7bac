"""DDPM with 1,000 steps (Ho et al. 2020): its noise schedule, and DDIM."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

STEPS = 1000


def alphas_cumprod() -> Tensor:
    """Return the share of signal after each step, alpha_bar `[1000]` in float64.

    The schedule is linear: beta from 1e-4 to 0.02.
    """
    return torch.from_numpy(np.cumprod(1 - np.linspace(1e-4, 0.02, STEPS, dtype=np.float64)))


def discrete_steps(t: Tensor) -> Tensor:
    """Return the step 0..999 of each time `[B]` in 0..1."""
    return (t.double() * STEPS).long().clamp(max=STEPS - 1)


def add_noise(image: Tensor, noise: Tensor, alpha_bar: Tensor) -> Tensor:
    """Return sqrt(alpha_bar) image + sqrt(1 - alpha_bar) noise, `[B, C, H, W]`.

    `alpha_bar` is `[B]`. The network predicts the noise.
    """
    alpha_bar = alpha_bar.view(-1, 1, 1, 1)
    signal, sigma = alpha_bar.sqrt().to(image.dtype), (1 - alpha_bar).sqrt().to(image.dtype)
    return signal * image + sigma * noise


def ddim(
    predict: Callable[[Tensor, Tensor], Tensor],
    noise: Tensor,
    *,
    alpha_bar: Tensor,
    steps: int,
    clamp: bool,
) -> Tensor:
    """Return images from `noise` `[B, C, H, W]` in `steps` deterministic steps (Song et al. 2021).

    `predict` is a function of `x` and `t` `[B]`; `alpha_bar` is `[1000]`. The steps are evenly
    spaced and include the last of the 1,000 (`trailing`). `clamp` limits the image predicted at
    each step to -1..1.
    """
    visited = torch.round(torch.arange(STEPS, 0, -STEPS / steps, dtype=torch.float64)).long() - 1
    x = noise
    for number, step in enumerate(visited.tolist()):
        eps = predict(x, torch.full((len(x),), step / STEPS, device=x.device))
        signal, sigma = math.sqrt(alpha_bar[step]), math.sqrt(1 - alpha_bar[step])
        image = (x - sigma * eps) / signal
        if clamp:
            image = image.clamp(-1, 1)
        after = float(alpha_bar[visited[number + 1]]) if number + 1 < len(visited) else 1.0
        x = math.sqrt(after) * image + math.sqrt(1 - after) * eps
    return x
