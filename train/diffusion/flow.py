"""Rectified flow (Liu et al. 2022): its path from image to noise, and its ODE solvers."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

_LEAST_T = 0.05


def interpolate(image: Tensor, noise: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Return the network's input and its target, both `[B, C, H, W]`; `t` is `[B]`.

    The input is x_t = (1 - t) image + t noise, the target is v = noise - image.
    """
    return torch.lerp(image, noise, t.view(-1, 1, 1, 1)), noise - image


def velocity_to(image: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """Return the velocity (x - image) / max(t, 0.05) `[B, C, H, W]`; `t` is `[B]`.

    A network that predicts the image is trained on the loss of this velocity, with the bound of
    JiT (Li & He 2025).
    """
    return (x - image) / t.clamp(min=_LEAST_T).view(-1, 1, 1, 1)


def solve_ode(
    velocity: Callable[[Tensor, Tensor], Tensor],
    noise: Tensor,
    *,
    steps: int,
    heun: bool = False,
) -> Tensor:
    """Return images from `noise` `[B, C, H, W]`, in `steps` steps from t = 1 to 0.

    `velocity` is a function of `x` and `t` `[B]`. The steps are Euler's. Heun's method corrects
    each of them by the velocity at its end, except the last, which ends at t = 0 (Karras et al.
    2022).
    """
    x = noise
    times = torch.linspace(1, 0, steps + 1, device=noise.device)
    for t, t_next in itertools.pairwise(times):
        v = velocity(x, t.expand(len(x)))
        x_next = x + (t_next - t) * v
        if heun and t_next > 0:
            x_next = x + (t_next - t) * (v + velocity(x_next, t_next.expand(len(x)))) / 2
        x = x_next
    return x
