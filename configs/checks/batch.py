"""How a global batch and a device mesh divide over ranks."""

from dataclasses import dataclass

from configs.checks.aitoolkit import check_engine
from configs.errors import ConfigError
from configs.schema import Finetune, Pretrain, Run


@dataclass(frozen=True, kw_only=True)
class BatchLayout:
    """The mesh (replicate x shard x tensor ranks) and the batch of one rank.

    The global batch is data_ranks x micro_batch x accumulation. The ranks of one tensor-parallel
    group work on the same images.
    """

    replicate: int
    shard: int
    tensor: int
    micro_batch: int
    accumulation: int

    @property
    def data_ranks(self) -> int:
        """The number of ranks, or tensor-parallel groups, with images of their own."""
        return self.replicate * self.shard

    @property
    def world(self) -> int:
        """The world size."""
        return self.data_ranks * self.tensor

    @property
    def noise_count(self) -> int:
        """K, the microbatches with separate gradients: one per data rank, or the single rank's."""
        return self.data_ranks if self.data_ranks > 1 else self.accumulation

    @property
    def noise_batch(self) -> int:
        """b, the images of each of these microbatches."""
        return self.data_ranks * self.micro_batch * self.accumulation // self.noise_count


def check_ranks(config: Run, *, world: int, engine: str | None = None) -> None:
    """Raise `ConfigError` if `world` ranks cannot do the work; `engine` trained the run before."""
    if isinstance(config, Finetune):
        check_engine(config, world=world, before=engine)
    if isinstance(config, Pretrain | Finetune):
        divide(config, world=world)


def divide(config: Pretrain | Finetune, *, world: int, tuned: int | None = None) -> BatchLayout:
    """Return the mesh and the batch of `world` ranks; `ConfigError` names the nearest that fits.

    `tuned` is the micro-batch that the search for `train.micro_batch: auto` found; None means
    the largest, the whole share of a rank.
    """
    replicate, shard, tensor = _mesh(config, world)
    batch, data_ranks = config.train.global_batch, replicate * shard
    if batch % data_ranks:
        lower = batch // data_ranks * data_ranks
        raise ConfigError(
            f"train.global_batch {batch} does not divide over {data_ranks} data ranks; "
            f"{f'{lower} or ' if lower else ''}{lower + data_ranks} would"
        )
    share = batch // data_ranks
    requested = config.train.micro_batch
    micro = (tuned if requested == "auto" else requested) or share
    if share % micro:
        raise ConfigError(
            f"train.micro_batch {micro} does not divide the {share} images of a data rank "
            f"(train.global_batch {batch} over {data_ranks}); {_nearest(share, micro)} would"
        )
    times = share // micro
    layout = BatchLayout(
        replicate=replicate, shard=shard, tensor=tensor, micro_batch=micro, accumulation=times
    )
    if isinstance(config, Pretrain):
        _check_microbatches(config, layout)
    return layout


def _check_microbatches(config: Pretrain, layout: BatchLayout) -> None:
    """Raise `ConfigError` if the run cannot do with the microbatches of this layout."""
    if not config.gns.enabled:
        return
    count, batch = layout.noise_count, layout.noise_batch
    if count < 2:
        raise ConfigError(
            f"gns.enabled compares microbatches, but one rank with train.micro_batch {batch} has "
            "one per step: set train.micro_batch to half of train.global_batch or less"
        )


def _mesh(config: Pretrain | Finetune, world: int) -> tuple[int, int, int]:
    """Return the replicate, shard and tensor degrees; their product is the world size."""
    if isinstance(config, Finetune):
        return world, 1, 1
    layout, heads = config.layout, config.model.heads
    split = layout.shard * layout.tensor
    replicate = layout.replicate or world // split
    if replicate * split != world:
        raise ConfigError(
            f"layout: replicate {layout.replicate or 'null'} x shard {layout.shard} x tensor "
            f"{layout.tensor} does not make {world} ranks; set layout.shard x layout.tensor to a "
            f"divisor of {world} and layout.replicate to null"
        )
    if heads % layout.tensor:
        raise ConfigError(
            f"layout.tensor {layout.tensor} does not divide model.heads {heads}: each rank "
            "computes whole heads"
        )
    return replicate, layout.shard, layout.tensor


def _nearest(number: int, target: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - target))
