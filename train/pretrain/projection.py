"""The projection of a block's tokens onto features, which REPA trains beside the network.

It is small, whole on every rank, and in no exported weights.
"""

import itertools

import torch
from torch import nn

from configs.schema import Pretrain


def make_projection(config: Pretrain, device: torch.device) -> nn.Module | None:
    """Return an MLP of three layers with weights initialised from `seed`; None without `repa`.

    Source: `build_mlp` of REPA (Yu et al. 2024), with its Xavier initialisation.
    """
    repa = config.repa
    if not repa.weight:
        return None
    torch.manual_seed(config.seed)
    sizes = (config.model.width, repa.hidden, repa.hidden, repa.features)
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.SiLU(), layers[1], nn.SiLU(), layers[2]).to(device)
