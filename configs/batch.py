"""How a global batch and a mesh divide over ranks; what does not divide is refused."""

from dataclasses import dataclass

from configs.schema import Pretrain, Run
from configs.yaml12 import ConfigError


@dataclass(frozen=True, kw_only=True)
class Division:
    """The share of one rank: world = replicate x shard, batch = world x micro x accumulation."""

    world: int
    replicate: int
    shard: int
    micro_batch: int
    accumulation: int


def check_ranks(config: Run, *, world: int) -> None:
    """Refuse a number of ranks that the run's work does not divide over."""
    if isinstance(config, Pretrain):
        divide(config, world=world)


def divide(config: Pretrain, *, world: int) -> Division:
    """The mesh and the batches of `world` ranks; `ConfigError` says what would fit."""
    shard = config.layout.shard
    replicate = config.layout.replicate or world // shard
    if replicate * shard != world:
        raise ConfigError(
            f"layout: replicate {config.layout.replicate or 'null'} x shard {shard} does not make "
            f"{world} ranks; set layout.shard to a divisor of {world} and layout.replicate to null"
        )
    batch = config.train.global_batch
    if batch % world:
        lower = batch // world * world
        raise ConfigError(
            f"train.global_batch {batch} does not divide over {world} ranks; "
            f"{f'{lower} or ' if lower else ''}{lower + world} would"
        )
    share = batch // world
    micro = config.train.micro_batch or share
    if share % micro:
        raise ConfigError(
            f"train.micro_batch {micro} does not divide the {share} images of a rank "
            f"(train.global_batch {batch} over {world} ranks); {_nearest(share, micro)} would"
        )
    return Division(
        world=world,
        replicate=replicate,
        shard=shard,
        micro_batch=micro,
        accumulation=share // micro,
    )


def _nearest(number: int, wish: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wish))
