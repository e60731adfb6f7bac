"""`train.compile: auto`: the blocks are compiled if all ranks of the first attempt could do it."""

import torch

from configs.checks.compute_node import check_compiler
from configs.errors import ConfigError
from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.engine.distributed import Ranks, from_every_rank, from_rank_0
from train.engine.metrics import log


def with_compile_resolved(run: RunFolder, config: Pretrain, ranks: Ranks) -> Pretrain:
    """Return the config with `auto` resolved; a resumed run keeps what it had. Collective."""
    if config.train.compile != "auto":
        return config
    known = from_rank_0([e["compile"] for e in run.entries() if "compile" in e])
    compiles = known[0] if known else all(from_every_rank(_can_compile(ranks.device)))
    train = config.train.model_copy(update={"compile": compiles})
    return config.model_copy(update={"train": train})


def _can_compile(device: torch.device) -> bool:
    try:
        if device.type == "cuda":
            check_compiler()
    except ConfigError as error:
        log.warning("the blocks run eagerly: %s", error)
        return False
    return device.type == "cuda"
