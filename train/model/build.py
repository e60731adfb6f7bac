"""Build the network of a config, and count its multiply-accumulates."""

from typing import Protocol

import torch
from torch import Tensor, nn

from configs.schema import Pretrain
from train.model.dit import DiT
from train.model.flops import dit_macs, training_macs


class Network(Protocol):
    """The interface that training needs in addition to that of `nn.Module`."""

    null_label: int

    @property
    def blocks(self) -> nn.ModuleList | list[nn.Module]:
        """The modules that are sharded, checkpointed and compiled one by one."""
        ...

    def init_buffers(self) -> None:
        """Compute the buffers that no checkpoint holds, on the device of the weights."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`."""
        ...


def build_network(config: Pretrain) -> nn.Module:
    """Return a `Network` with weights initialised from `seed`, the same on every rank."""
    torch.manual_seed(config.seed)
    if config.model.family == "unet":
        # A late import: diffusers takes seconds to import.
        from train.model.unet import UNet

        return UNet(config)
    return DiT(config)


def network_macs(config: Pretrain, *, training: bool = False) -> dict[str, int]:
    """Return the forward multiply-accumulates per image, by component; `training` with routing."""
    if config.model.family == "unet":
        from train.model.unet import unet_macs

        return unet_macs(config)
    return training_macs(config) if training else dit_macs(config)
