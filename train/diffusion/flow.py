"""Rectified flow (Liu et al. 2022): what is learnt, and how its equation is solved."""

import itertools

import torch
from torch import Tensor

from train.diffusion.guidance import Denoiser, guided


def interpolate(image: Tensor, noise: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """What the network sees and what it should say, both `[B, C, H, W]`.

    x_t = (1 - t) image + t noise; the target is v = noise - image. `t` `[B]`.
    """
    return torch.lerp(image, noise, t.view(-1, 1, 1, 1)), noise - image


def shift_time(t: Tensor, a: float) -> Tensor:
    """`t` moved towards noise, a t / (1 + (a - 1) t) (Esser et al. 2024)."""
    return t if a == 1 else a * t / (1 + (a - 1) * t)


def solve_ode(
    network: Denoiser,
    noise: Tensor,
    label: Tensor,
    *,
    null_label: int,
    steps: int,
    guidance: float,
    shift: float = 1.0,
    heun: bool = False,
) -> Tensor:
    """Images from `noise` `[B, C, H, W]`, from t = 1 to 0 in `steps` steps of Euler or Heun.

    Heun's method corrects each step by the slope at its end, but for the last, which ends at
    t = 0 (Karras et al. 2022).
    """
    x = noise
    times = shift_time(torch.linspace(1, 0, steps + 1, device=noise.device), shift)

    def slope(x: Tensor, t: Tensor) -> Tensor:
        at = t.expand(len(x))
        return guided(network, x, at, label, null_label=null_label, guidance=guidance)

    for now, then in itertools.pairwise(times):
        velocity = slope(x, now)
        there = x + (then - now) * velocity
        if heun and then > 0:
            there = x + (then - now) * (velocity + slope(there, then)) / 2
        x = there
    return x
