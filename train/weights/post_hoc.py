"""Averages of any width after training, from snapshots of two (Karras et al. 2024, section 3.2).

An average of width sigma_rel at step T weights the weights of step t by (gamma + 1) t^gamma /
T^(gamma + 1), up to T. A sum of snapshots stands for it: that whose profile is nearest to it.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from configs.errors import ConfigError
from train.engine.checkpoint import load_progress, numbered, refuse_damaged
from train.engine.checkpoint_files import complete, step_name
from train.engine.ema import GAMMAS
from train.engine.unpickler import load_tensors


@torch.no_grad()
def load_average(
    folder: Path, network: nn.Module, *, sigma_rel: float, step: int | None = None
) -> tuple[int, int]:
    """Load the average of width `sigma_rel` at the last snapshot; return its step and images.

    With `step`, later snapshots are left out.
    Collective. Raise `ConfigError` if there are no snapshots, or if one is damaged.
    """
    names = [name for name in complete(folder) if step is None or name <= step_name(step)]
    if not names:
        raise ConfigError(f"{folder}: no snapshots; train with train.ema_snapshots: 1000, say")
    steps = [int(name.removeprefix("step-")) for name in names]
    shares = coefficients(steps, gamma=gamma_of(sigma_rel))
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    powers = [{name: torch.empty_like(w) for name, w in weights.items()} for _ in GAMMAS]
    torch._foreach_zero_(list(weights.values()))
    for name, row in zip(names, shares, strict=True):
        refuse_damaged(folder / name)
        load_tensors({"training": {"powers": numbered(powers)}}, folder / name)
        for average, share in zip(powers, row, strict=True):
            torch._foreach_add_(list(weights.values()), list(average.values()), alpha=float(share))
    return load_progress(folder / names[-1])


def gamma_of(sigma_rel: float) -> float:
    """Return the exponent of a width: sigma_rel^2 = (gamma + 1) / ((gamma + 2)^2 (gamma + 3))."""
    if not 0 < sigma_rel < 12**-0.5:
        raise ConfigError(f"sigma_rel {sigma_rel}: expected above 0 and below 0.288, such as 0.1")
    square = sigma_rel**-2
    return float(np.roots([1, 7, 16 - square, 12 - square]).real.max())


def coefficients(steps: list[int], *, gamma: float) -> NDArray[np.float64]:
    """Return the shares `[len(steps), 2]` of snapshots, whose sum is 1.

    They minimise the squared distance of their summed profiles from that of `gamma` at the last.
    """
    times, gammas = np.repeat(np.array(steps, float), len(GAMMAS)), np.tile(GAMMAS, len(steps))
    products = _products(times[:, None], gammas[:, None], times, gammas)
    target = _products(times, gammas, times[-1], gamma)
    shares = np.linalg.solve(products, target)
    return (shares / shares.sum()).reshape(len(steps), len(GAMMAS))


def _products(
    t: NDArray[np.float64], gamma: NDArray[np.float64], other_t: NDArray[np.float64] | float,
    other_gamma: NDArray[np.float64] | float,
) -> NDArray[np.float64]:  # fmt: skip
    """Return the integral of the product of two profiles."""
    both = np.minimum(t, other_t)
    overlap = (both / t) ** (gamma + 1) * (both / other_t) ** (other_gamma + 1) / both
    return overlap * (gamma + 1) * (other_gamma + 1) / (gamma + other_gamma + 1)
