"""REPA (Yu et al. 2024): align the tokens of a block with features of a frozen encoder.

An MLP projects the tokens; it is trained beside the network, whole on every rank, and never
sampled from. Its keys are the group `repa`.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.errors import DataError
from configs.schema import Pretrain
from train.data.latents.dataset import Latents
from train.data.source import Source
from train.engine.gradients import squared_gradient_norm, sum_gradients
from train.engine.part import Part
from train.model import flops


class TokenAlignment(Part):
    """The projection, and the term of the loss that it is trained with."""

    def __init__(self, config: Pretrain, device: torch.device) -> None:
        self._repa = config.repa
        self.block, self.projection = config.repa.block, make_projection(config, device)

    def term(self, tokens: Tensor, features: Tensor) -> Tensor:
        """Return the weighted error `[B]` for tokens `[B, T, width]` and features `[B, T, D]`."""
        return self._repa.weight * alignment_error(self.projection(tokens), features)

    def sum_gradients(self) -> Tensor:
        """Average the gradients over ranks; return their squared norm."""
        sum_gradients(self.projection, mean=True)
        return squared_gradient_norm(self.projection)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters of the projection."""
        return dict(self.projection.named_parameters("projection"))


def make_alignment(config: Pretrain, device: torch.device) -> TokenAlignment | None:
    """Return the part of `repa`, if it is on."""
    return TokenAlignment(config, device) if config.repa.weight else None


def make_projection(config: Pretrain, device: torch.device) -> nn.Module:
    """Return an MLP of three layers with weights initialised from `seed`.

    Source: `build_mlp` of REPA (Yu et al. 2024), with its Xavier initialisation.
    """
    repa = config.repa
    torch.manual_seed(config.seed)
    sizes = (config.model.width, repa.hidden, repa.hidden, repa.features)
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.SiLU(), layers[1], nn.SiLU(), layers[2]).to(device)


def alignment_error(tokens: Tensor, features: Tensor) -> Tensor:
    """Return the mean of -cos(token, feature), `[B]`, for `[B, T, D]`."""
    return -F.cosine_similarity(tokens.float(), features.float(), dim=-1).mean(dim=1)


def zero_features(config: Pretrain, images: int, device: torch.device) -> Tensor | None:
    """Return features `[images, T, D]` of zeros, or None without alignment."""
    if not config.repa.weight:
        return None
    shape = images, flops.patches(config), config.repa.features
    return torch.zeros(shape, dtype=torch.float16, device=device)


def check_features(source: Source, config: Pretrain) -> None:
    """Raise `DataError` unless the latent store has the features that the config aligns with."""
    if not config.repa.weight:
        return
    expected = flops.patches(config), config.repa.features
    stored = source.index.features if isinstance(source, Latents) else None
    if stored is None or stored.shape != expected:
        raise DataError(
            f"{config.data.path}: repa needs {expected[0]} features of {expected[1]} channels "
            f"per image, it has {stored.shape if stored else None}; set repa.features, or "
            "encode with encode.features and encode.feature_grid into another folder"
        )
