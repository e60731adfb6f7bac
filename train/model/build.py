"""Build the network of a config, and count its multiply-accumulates."""

import importlib
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from configs.schema import Pretrain
from train.model.published import State
from train.model.routing import first_patches, routed

# The module and the class of each `model.family`. They are imported late: diffusers takes seconds.
_FAMILIES = {
    "dit": ("train.model.dit", "DiT"),
    "jit": ("train.model.jit", "JiT"),
    "unet": ("train.model.unet", "UNet"),
}


class Network(Protocol):
    """The interface that training needs besides `nn.Module`'s.

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
    """Return the forward multiply-accumulates per image by kind of operation.

    In `training` some patches may skip blocks.
    """
    found = dict.fromkeys(("products", "attention", "convolutions"), 0)
    for operation, flops in _flop_counts(config, training=training)["Global"].items():
        found[_kind(str(operation))] += flops // 2
    return found


def _flop_counts(config: Pretrain, *, training: bool) -> dict[str, dict[Any, int]]:
    """Return the FLOPs of a forward pass of an image, by module and operation."""
    data, device = config.data, torch.device("meta")
    with device, torch.random.fork_rng(devices=[]):
        network = build_network(config)
        image, label = torch.empty(1, data.channels, data.size, data.size), torch.zeros(1).long()
        keep = first_patches(config, 1, device) if training else None
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            routed(network, keep)(image, torch.empty(1), label)
    return counter.get_flop_counts()


def _kind(operation: str) -> str:
    if "convolution" in operation:
        return "convolutions"
    return "attention" if "bmm" in operation or "attention" in operation else "products"
