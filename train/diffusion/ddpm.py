"""DDPM over 1,000 steps (Ho et al. 2020): schedules, targets, weights, and DDIM sampling."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from train.diffusion.guidance import Denoiser, guided

STEPS = 1000
Prediction = Literal["eps", "v"]


def alphas_cumprod(schedule: Literal["linear", "cosine"]) -> Tensor:
    """The share of signal after each step, abar `[1000]` in float64.

    Linear: beta from 1e-4 to 0.02. Cosine (Nichol & Dhariwal 2021): beta is at most 0.999.
    """
    if schedule == "linear":
        beta = np.linspace(1e-4, 0.02, STEPS, dtype=np.float64)
    else:
        edges = np.cos((np.arange(STEPS + 1) / STEPS + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = np.minimum(1 - edges[1:] / edges[:-1], 0.999)
    return torch.from_numpy(np.cumprod(1 - beta))


def discrete_steps(t: Tensor) -> Tensor:
    """The step 0..999 of a time `[B]` in 0..1."""
    return (t.double() * STEPS).long().clamp(max=STEPS - 1)


def add_noise(
    image: Tensor, noise: Tensor, share: Tensor, prediction: Prediction
) -> tuple[Tensor, Tensor]:
    """What the network sees and what it should say, both `[B, C, H, W]`; `share` is abar `[B]`.

    x = sqrt(abar) image + sqrt(1 - abar) noise; v = sqrt(abar) noise - sqrt(1 - abar) image.
    """
    signal, rest = _roots(share, image)
    x = signal * image + rest * noise
    return x, noise if prediction == "eps" else signal * noise - rest * image


def min_snr_weight(share: Tensor, cap: float, prediction: Prediction) -> Tensor:
    """The weight `[B]` of Hang et al. 2023, min(SNR, cap) over SNR (eps) or SNR + 1 (v)."""
    snr = share / (1 - share)
    return (snr.clamp(max=cap) / (snr if prediction == "eps" else snr + 1)).float()


def ddim(
    network: Denoiser,
    noise: Tensor,
    label: Tensor,
    *,
    shares: Tensor,
    prediction: Prediction,
    null_label: int,
    steps: int,
    guidance: float,
    clamp: bool,
) -> Tensor:
    """Images from `noise` `[B, C, H, W]` in `steps` steps, without fresh noise (Song et al. 2021).

    The steps are spread evenly and end the range (`trailing`); `clamp` keeps the image that
    each step foresees within -1..1.
    """
    places = torch.round(torch.arange(STEPS, 0, -STEPS / steps, dtype=torch.float64)).long() - 1
    x = noise
    for number, place in enumerate(places.tolist()):
        t = torch.full((len(x),), place / STEPS, device=x.device)
        said = guided(network, x, t, label, null_label=null_label, guidance=guidance)
        signal, rest = math.sqrt(shares[place]), math.sqrt(1 - shares[place])
        if prediction == "eps":
            image, eps = (x - rest * said) / signal, said
        else:
            image, eps = signal * x - rest * said, signal * said + rest * x
        if clamp:
            image = image.clamp(-1, 1)
        after = float(shares[places[number + 1]]) if number + 1 < len(places) else 1.0
        x = math.sqrt(after) * image + math.sqrt(1 - after) * eps
    return x


def _roots(share: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    share = share.view(-1, 1, 1, 1)
    return share.sqrt().to(like.dtype), (1 - share).sqrt().to(like.dtype)
