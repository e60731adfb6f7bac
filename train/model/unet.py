"""The U-Net of DDPM (Ho et al. 2020): diffusers' `UNet2DModel` behind our interface."""

import math
from typing import Any, cast

import torch
from diffusers import UNet2DModel
from torch import Tensor, nn

from configs.schema import Pretrain


class UNet(nn.Module):
    """Predict a tensor of the input's shape from a noisy image, a time and a label."""

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        unet, data = config.model.unet, config.data
        down = ["AttnDownBlock2D" if here else "DownBlock2D" for here in unet.attention]
        up = ["AttnUpBlock2D" if here else "UpBlock2D" for here in reversed(unet.attention)]
        self.null_label = data.classes
        self.unet: Any = UNet2DModel(
            sample_size=data.size,
            in_channels=data.channels,
            out_channels=data.channels,
            block_out_channels=tuple(unet.width * mult for mult in unet.mults),
            layers_per_block=unet.layers,
            down_block_types=tuple(down),
            up_block_types=tuple(up),
            norm_num_groups=math.gcd(32, unet.width),
            attention_head_dim=math.gcd(32, unet.width),
            num_class_embeds=data.classes + 1,
        )

    @property
    def blocks(self) -> list[nn.Module]:
        """The modules that are sharded and compiled one by one."""
        unet = self.unet
        return [*unet.down_blocks, unet.mid_block, *unet.up_blocks]

    def init_buffers(self) -> None:
        """Do nothing: a U-Net has no such buffers."""

    def from_published(self, state: dict[str, Tensor]) -> None:
        """Return None: no published weights are converted."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`.

        Activations are channels-last in memory: in NCHW, convolutions on tensor cores transpose
        their input and output. In training, diffusers makes the input of shortcuts NCHW.
        """
        x = x.contiguous(memory_format=torch.channels_last)
        return cast(Tensor, self.unet(x, 1000 * t, class_labels=label, return_dict=False)[0])
