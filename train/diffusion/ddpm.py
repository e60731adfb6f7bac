"""DDPM with 1,000 steps (Ho et al. 2020): noise schedules, targets, loss weights and DDIM."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

STEPS = 1000
Prediction = Literal["eps", "v"]


def alphas_cumprod(schedule: Literal["linear", "cosine"]) -> Tensor:
    """Return the share of signal after each step, alpha_bar `[1000]` in float64.

    Linear: beta from 1e-4 to 0.02. Cosine (Nichol & Dhariwal 2021): beta is at most 0.999.
    """
    if schedule == "linear":
        beta = np.linspace(1e-4, 0.02, STEPS, dtype=np.float64)
    else:
        edges = np.cos((np.arange(STEPS + 1) / STEPS + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = np.minimum(1 - edges[1:] / edges[:-1], 0.999)
    return torch.from_numpy(np.cumprod(1 - beta))


def discrete_steps(t: Tensor) -> Tensor:
    """Return the step 0..999 of each time `[B]` in 0..1."""
    return (t.double() * STEPS).long().clamp(max=STEPS - 1)


def add_noise(
    image: Tensor, noise: Tensor, alpha_bar: Tensor, prediction: Prediction
) -> tuple[Tensor, Tensor]:
    """Return the network's input and its target, both `[B, C, H, W]`; `alpha_bar` is `[B]`.

    x = sqrt(alpha_bar) image + sqrt(1 - alpha_bar) noise. The target is the noise (eps), or
    v = sqrt(alpha_bar) noise - sqrt(1 - alpha_bar) image (Salimans & Ho 2022).
    """
    alpha_bar = alpha_bar.view(-1, 1, 1, 1)
    signal, sigma = alpha_bar.sqrt().to(image.dtype), (1 - alpha_bar).sqrt().to(image.dtype)
    x = signal * image + sigma * noise
    return x, noise if prediction == "eps" else signal * noise - sigma * image


def min_snr_weight(alpha_bar: Tensor, cap: float, prediction: Prediction) -> Tensor:
    """Return min(SNR, cap) / SNR for eps, / (SNR + 1) for v (Hang et al. 2023), `[B]` float32."""
    snr = alpha_bar / (1 - alpha_bar)
    return (snr.clamp(max=cap) / (snr if prediction == "eps" else snr + 1)).float()


def ddim(
    predict: Callable[[Tensor, Tensor], Tensor],
    noise: Tensor,
    *,
    alpha_bar: Tensor,
    prediction: Prediction,
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
        output = predict(x, torch.full((len(x),), step / STEPS, device=x.device))
        signal, sigma = math.sqrt(alpha_bar[step]), math.sqrt(1 - alpha_bar[step])
        if prediction == "eps":
            image, eps = (x - sigma * output) / signal, output
        else:
            image, eps = signal * x - sigma * output, signal * output + sigma * x
        if clamp:
            image = image.clamp(-1, 1)
        after = float(alpha_bar[visited[number + 1]]) if number + 1 < len(visited) else 1.0
        x = math.sqrt(after) * image + math.sqrt(1 - after) * eps
    return x
