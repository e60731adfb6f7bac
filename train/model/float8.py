"""Matrix products in float8 (Micikevicius et al. 2022), by torchao, where the GPU has them."""

from typing import Any

import torch
from torch import nn

from configs.errors import ConfigError

_LEAST = (8, 9)


def check_float8(device: torch.device) -> None:
    """Refuse a machine that cannot; `ConfigError` says why."""
    if device.type != "cuda":
        raise ConfigError("train.float8 needs a GPU; this rank has none: set train.float8: false")
    found = torch.cuda.get_device_capability(device)
    if found < _LEAST:
        raise ConfigError(
            f"train.float8 needs a GPU of compute capability 8.9 (L40S, H100 and later); "
            f"{torch.cuda.get_device_name(device)} has {found[0]}.{found[1]}: set it to false"
        )


def use_float8(blocks: list[nn.Module], *, emulate: bool = False) -> None:
    """Let the attention and MLP layers of the blocks multiply in float8, scaled per tensor.

    The modulation stays: it has one row per image, too few to gain. `emulate` computes the same
    roundings on any device, slowly.
    """
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise ConfigError(
            f"train.float8 needs torchao ({error}); env/create.sh installs it, or set it to false"
        ) from None
    for block in blocks:
        config: Any = Float8LinearConfig(emulate=emulate)
        convert_to_float8_training(block, config=config, module_filter_fn=_is_large)


def _is_large(module: nn.Module, name: str) -> bool:
    """Whether a layer's products are many and of sizes that float8 kernels take."""
    if not isinstance(module, nn.Linear) or "modulation" in name:
        return False
    return module.in_features % 16 == 0 and module.out_features % 16 == 0
