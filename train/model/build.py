"""From a config to the network that is trained."""

from typing import Protocol

import torch
from torch import Tensor, nn

from configs.schema import Pretrain
from train.model.dit import DiT
from train.model.flops import dit_macs


class Network(Protocol):
    """What the loop needs of a network beyond that of a module."""

    null_label: int

    @property
    def blocks(self) -> nn.ModuleList | list[nn.Module]:
        """The parts that are sharded, recomputed and compiled one by one."""
        ...

    def init_buffers(self) -> None:
        """Compute what is neither learned nor saved, on the device of the weights."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """`x` `[B, C, H, W]`, `t` `[B]` in 0..1, `label` `[B]`."""
        ...


def build_network(config: Pretrain) -> nn.Module:
    """A `Network` with the weights that `seed` gives, the same on every rank."""
    torch.manual_seed(config.seed)
    model, data = config.model, config.data
    if model.family == "unet":
        # Imported where wanted: diffusers takes seconds.
        from train.model.unet import make_unet

        return make_unet(config)
    return DiT(
        width=model.width,
        depth=model.depth,
        heads=model.heads,
        patch=model.patch,
        mlp=model.mlp,
        mlp_ratio=model.mlp_ratio,
        conditioning=model.conditioning,
        positions=model.positions,
        frequencies=model.frequencies,
        qk_norm=model.qk_norm,
        size=data.size,
        channels=data.channels,
        classes=data.classes,
    )


def network_macs(config: Pretrain) -> dict[str, int]:
    """Forward multiply-accumulates per image, by component."""
    if config.model.family == "unet":
        from train.model.unet import unet_macs

        return unet_macs(config)
    return dit_macs(config)
