"""Terms that training can add to the error of the velocity (`objective.extra`).

The contrastive and the dispersive term are functions of groups of consecutive images.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def direction_error(velocity: Tensor, target: Tensor) -> Tensor:
    """Return 1 - cos(velocity, target) over channels, `[B]`, for inputs `[B, C, H, W]`.

    The mean over positions, as in FasterDiT (Yao et al. 2024) and LightningDiT.
    """
    return 1 - F.cosine_similarity(velocity, target, dim=1).flatten(1).mean(dim=1)


def next_in_group(x: Tensor, group: int) -> Tensor:
    """Return for each row of `x` `[B, ...]` the next of its group, for the last row the first.

    `group` divides B. The order of images is random, so that the next image is as good as any
    other of the batch, from which contrastive flow matching (Stoica et al. 2025) draws.
    """
    return x.unflatten(0, (-1, group)).roll(-1, dims=1).flatten(0, 1)


def alignment_error(tokens: Tensor, features: Tensor) -> Tensor:
    """Return the mean of -cos(token, feature), `[B]`, for inputs `[B, T, D]`.

    Source: REPA (Yu et al. 2024).
    """
    return -F.cosine_similarity(tokens.float(), features.float(), dim=-1).mean(dim=1)


def dispersion(tokens: Tensor, group: int) -> Tensor:
    """Return log mean exp(-d) over the pairs of each group, `[B]`, for tokens `[B, T, width]`.

    d is the mean squared difference of two images' tokens; an image pairs with itself, too. All
    images of a group have the same value. Source: Wang & He 2025, InfoNCE with L2 distance at
    temperature 1, normalised as in their code.
    """
    z = tokens.float().flatten(1).unflatten(0, (-1, group))
    # Not by a matrix product, whose rounding in bf16 or TF32 is larger than small distances.
    distance = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    similarity = (-distance.square() / z.shape[-1]).flatten(1).logsumexp(dim=1)
    return (similarity - 2 * math.log(group)).repeat_interleave(group)
