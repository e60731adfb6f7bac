"""The optimizers of the matrices of a LoRA."""

from typing import Any

import torch
from prodigyopt import Prodigy
from torch import nn

from configs.checks.compute_node import check_compiler
from configs.errors import ConfigError
from configs.schema.finetune import LoraOptimizer

_EPS = 1e-6


def check_optimizer(config: LoraOptimizer, device: torch.device) -> None:
    """Raise `ConfigError` if 8-bit moments are asked for without CUDA."""
    if config.kind == "adamw8bit" and device.type != "cuda":
        raise ConfigError(
            "optimizer.kind adamw8bit needs a CUDA GPU, and this machine has none; set "
            "optimizer.kind=adamw, or run it on a GPU"
        )
    if config.kind == "adamw8bit":
        check_compiler()  # its step is compiled


def make_optimizer(weights: nn.Module, config: LoraOptimizer) -> torch.optim.Optimizer:
    """Return the optimizer of `optimizer.kind`.

    All state exists from the start, or is created by `CheckpointState`, so that a checkpoint can
    be loaded into it.
    """
    parameters = list(weights.parameters())
    groups = [{"params": parameters, "weight_decay": config.weight_decay}]
    adamw: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2), "eps": _EPS}
    if config.kind == "prodigy":
        return _Prodigy(groups, safeguard_warmup=config.warmup_steps > 0, **adamw)
    if config.kind == "adamw":  # Loshchilov & Hutter 2019
        return torch.optim.AdamW(groups, fused=True, **adamw)
    # Imported here because it takes seconds and most runs do not need it.
    from torchao.optim import AdamW8bit

    optimizer = AdamW8bit(groups, **adamw)  # Dettmers et al. 2021
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": optimizer._new_buffer(parameter, True),
            "exp_avg_sq": optimizer._new_buffer(parameter, False),
        }
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give the optimizer the learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class _Prodigy(Prodigy):  # type: ignore[misc]
    """Prodigy (Mishchenko & Defazio 2024), with all of its state in tensors of its parameters.

    The numbers of its estimate `d` are those of a group, which checkpoints do not hold.
    """

    _NUMBERS = ("d", "d_max", "d_numerator", "k")

    def __init__(self, groups: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(groups, **settings)
        (group,) = self.param_groups
        for parameter in group["params"]:
            flat = parameter.detach().flatten()
            self.state[parameter] = {
                "step": torch.tensor(0.0),
                "s": torch.zeros_like(flat),
                "p0": flat.clone(),
                "exp_avg": torch.zeros_like(parameter.detach()),
                "exp_avg_sq": torch.zeros_like(parameter.detach()),
            }
        self._numbers = torch.tensor([group[n] for n in self._NUMBERS], dtype=torch.float64)
        self.state[group["params"][0]]["numbers"] = self._numbers

    def step(self, closure: Any = None) -> None:
        """Take one step, and keep the numbers of the group."""
        (group,) = self.param_groups
        group |= dict(zip(self._NUMBERS, self._numbers.tolist(), strict=True))
        super().step(closure)
        self._numbers.copy_(torch.tensor([group[n] for n in self._NUMBERS], dtype=torch.float64))
