"""`train.compile: auto`: the blocks are compiled if all ranks of the first attempt could do it."""

from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.engine.distributed import Ranks, from_every_rank, from_rank_0
from train.model.parallelize import can_compile


def with_compile_resolved(run: RunFolder, config: Pretrain, ranks: Ranks) -> Pretrain:
    """Return the config with `auto` resolved; a resumed run keeps what it had. Collective."""
    if config.train.compile != "auto":
        return config
    known = from_rank_0([e["compile"] for e in run.entries() if "compile" in e])
    compiles = known[0] if known else all(from_every_rank(can_compile(ranks.device)))
    train = config.train.model_copy(update={"compile": compiles})
    return config.model_copy(update={"train": train})
