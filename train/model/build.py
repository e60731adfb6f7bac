"""Build the network of a config, and count its multiply-accumulates."""

import importlib
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from configs.schema import Pretrain
from train.model.flops import dit_macs, training_macs
from train.model.published import State

# The module and the class of each `model.family`. They are imported late: diffusers takes seconds.
_FAMILIES = {
    "dit": ("train.model.dit", "DiT"),
    "jit": ("train.model.jit", "JiT"),
    "unet": ("train.model.unet", "UNet"),
}


class Network(Protocol):
    """The interface that training needs in addition to that of `nn.Module`.

    Its layers say how they are treated (`train.model.roles`).
    """

    null_label: int

    @property
    def blocks(self) -> nn.ModuleList | list[nn.Module]:
        """The modules that are sharded, checkpointed and compiled one by one."""
        ...

    def init_buffers(self) -> None:
        """Compute the buffers that no checkpoint holds, on the device of the weights."""

    def from_published(self, state: State) -> State | None:
        """Return published weights by the names of this network, or None if they are not its."""
        ...

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`."""
        ...


def build_network(config: Pretrain) -> nn.Module:
    """Return a `Network` with weights initialised from `seed`, the same on every rank."""
    torch.manual_seed(config.seed)
    module, name = _FAMILIES[config.model.family]
    network: nn.Module = getattr(importlib.import_module(module), name)(config)
    return network


def network_macs(config: Pretrain, *, training: bool = False) -> dict[str, int]:
    """Return the forward multiply-accumulates per image, by component; `training` with routing."""
    if config.model.family == "dit":
        return training_macs(config) if training else dit_macs(config)
    return counted_macs(config)


def counted_macs(config: Pretrain) -> dict[str, int]:
    """Return the forward multiply-accumulates per image, counted on the meta device."""
    data = config.data
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        network = build_network(config)
        image = torch.empty(1, data.channels, data.size, data.size)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(image, torch.empty(1), torch.zeros(1, dtype=torch.long))
    counts = counter.get_flop_counts()["Global"]
    convolutions = sum(flops for op, flops in counts.items() if "convolution" in str(op))
    rest = sum(counts.values()) - convolutions
    return {"convolutions": convolutions // 2, "rest": rest // 2}
