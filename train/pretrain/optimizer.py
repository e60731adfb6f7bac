"""The optimizer of a run and the parameters that it treats alike."""

from typing import Any

import torch
from torch import Tensor, nn

from configs.schema import Pretrain
from train.engine.ema import EMA
from train.pretrain.muon import LocalAdamW, Muon
from train.pretrain.schedule_free import ScheduleFreeAdamW

# Of muP (Yang et al. 2022, table 8): the other matrices read inputs that grow with the width.
_EDGES = ("patches_", "time.0.", "label.", "registers")


def make_optimizer(
    model: nn.Module, config: Pretrain, ema: EMA, *, projection: nn.Module | None = None
) -> torch.optim.Optimizer:
    """Return the optimizer of `optimizer.kind`, which may move the `ema` of `model`, too.

    AdamW moves the `projection` of REPA.
    """
    optimizer = config.optimizer
    adamw: dict[str, Any] = {
        "lr": optimizer.lr,
        "betas": (optimizer.beta1, optimizer.beta2),
        "eps": optimizer.eps,
    }
    groups = parameter_groups(model, config)
    if projection is not None:
        groups.append({"params": list(projection.parameters()), "weight_decay": 0.0})
    if optimizer.kind == "muon":
        dtype = torch.float32 if config.train.precision in ("fp32", "tf32") else torch.bfloat16
        return Muon(groups, dtype=dtype, fused=True, **adamw)
    if optimizer.kind == "schedule_free":
        averages = {p: ema.weights[name] for name, p in model.named_parameters()}
        return ScheduleFreeAdamW(groups, averages=averages, warmup=optimizer.warmup_steps, **adamw)
    return LocalAdamW(groups, fused=True, **adamw)


def parameter_groups(model: nn.Module, config: Pretrain) -> list[dict[str, Any]]:
    """Return the groups of parameters that are treated alike; weight decay is on matrices only.

    Muon moves the matrices of attention and MLP. The modulation stays with AdamW: it has one row
    per image, so that its gradient has no more directions than the batch has images.
    """
    optimizer, is_muon = config.optimizer, config.optimizer.kind == "muon"
    matrices, vectors, hidden, qkv = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    wide, ratio = list[Tensor](), config.model.width_ratio()
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif ratio != 1 and not (name.startswith(_EDGES) or name.endswith("modulation.up")):
            wide.append(parameter)
        elif not is_muon or not name.startswith("blocks.") or "modulation" in name:
            matrices.append(parameter)
        else:
            (qkv if name.endswith("qkv.weight") else hidden).append(parameter)
    decayed: dict[str, Any] = {"weight_decay": optimizer.weight_decay}
    groups = [{"params": matrices, **decayed}, {"params": vectors, "weight_decay": 0.0}]
    if wide:  # the product of rate and weight decay does not depend on the width
        decay = optimizer.weight_decay * ratio
        groups.append({"params": wide, "rate": 1 / ratio, "weight_decay": decay})
    if is_muon:
        decayed |= {"momentum": optimizer.momentum}
        groups.append({"params": hidden, "heads": None, **decayed})
        groups.append({"params": qkv, "heads": config.model.heads, **decayed})
    return groups
