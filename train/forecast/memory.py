"""What a rank holds of a DiT's training, by kind, and the most at any one time; no torch.

Held to `train/forecast/dry_run.py`, which follows every storage through a step, in tests.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.forecast.activations import (
    SIZES,
    SavedBytes,
    block_kept,
    block_work,
    checkpoint_kept,
    compiled_kept,
    edges_kept,
    edges_work,
    operations_kept,
)
from train.forecast.parameters import block_count, edge_count, held_parameters

GIB = 2**30
# What the driver's context and the libraries' workspaces take, and with several ranks NCCL's
# buffers: stated, not derived.
CONTEXT = 0.75 * GIB
COMMUNICATION = 0.5 * GIB
# Of all that torch allocates: what its cache holds in blocks that nothing fits into.
SLACK = 0.03


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one rank by kind, each at its own largest, and `peak`, the most of them at once.

    Gradients come while activations go, so that `peak` can be less than the sum. `gathered` are
    the weights that FSDP collects, `cast` the copies that autocast makes, `work` gradients of
    activations; `overhead` is outside `peak`, which torch reports as allocated.
    """

    parameters: float
    gradients: float
    optimizer: float
    average: float
    activations: float
    gathered: float
    cast: float
    work: float
    overhead: float
    peak: float

    @property
    def total(self) -> float:
        """What the GPU must have."""
        return self.peak + self.overhead


def dit_memory(config: Pretrain, layout: BatchLayout) -> Memory:
    """The memory of one rank with the micro batch of `layout`."""
    images, tensor = layout.micro_batch, layout.tensor
    held = 4 * held_parameters(config, layout)
    stays = held * (3 + (config.train.ema_decay is not None))
    gradients, persistent = _gradients(config, layout)
    fresh = _fresh_gradients(config, layout)
    gathered, reduced = _gathered(config, layout)
    casts = _Casts.of(config, layout)
    block, again = _block(config, tensor), _recomputed(config)
    plain, kept = config.model.depth - again, _kept_when_recomputed(config, tensor)
    edges = edges_kept(config).image * images
    activations = edges + plain * _bytes(block, images) + again * _bytes(kept, images)
    # A block that is recomputed is whole again in its own backward pass.
    whole = (_bytes(block, images) - _bytes(kept, images)) if again else 0.0
    last, work = edges_work(config) * images, block_work(config, tensor=tensor) * images
    base = stays + gradients * persistent + gathered
    moments = (
        activations + casts.all,
        activations + casts.kept(plain) + last,
        (activations + casts.kept(plain) + whole + casts.block + work) * (again > 0),
        fresh + reduced + _bytes(block, images) + edges_of_batch(config) * images + casts.block,
    )
    peak = base + max(*moments, fresh - gathered)
    return Memory(
        parameters=held,
        gradients=gradients,
        optimizer=2 * held,
        average=held * (config.train.ema_decay is not None),
        activations=activations + whole,
        gathered=gathered + reduced,
        cast=casts.all,
        work=last,
        overhead=CONTEXT + COMMUNICATION * (layout.world > 1) + SLACK * peak,
        peak=peak,
    )


def dit_written(config: Pretrain, layout: BatchLayout) -> float:
    """Bytes of activations that the passes over one micro batch write, recomputed ones twice."""
    blocks = config.model.depth + _recomputed(config)
    block = _bytes(_block(config, layout.tensor), layout.micro_batch)
    return blocks * block + edges_kept(config).image * layout.micro_batch


def _bytes(kept: SavedBytes, images: int) -> float:
    return kept.image * images + kept.once


def edges_of_batch(config: Pretrain) -> int:
    """Bytes per image of the batch itself: image and noise in float32."""
    return 8 * config.data.channels * config.data.size**2


def _gradients(config: Pretrain, layout: BatchLayout) -> tuple[float, bool]:
    """Bytes of gradients, and whether they are there when a backward pass begins."""
    held = 4 * held_parameters(config, layout)
    accumulates = layout.accumulation > 1
    if layout.shard > 1 or layout.tensor > 1:
        # Gradients are reduced with the last microbatch only, and whole until then.
        whole = held * layout.shard if accumulates else held
        return whole, accumulates
    # The buckets of DDP stay, with gradients as views of them.
    return held, accumulates or layout.world > 1


def _fresh_gradients(config: Pretrain, layout: BatchLayout) -> float:
    """Bytes of gradients that a backward pass makes beside those that are there when it begins."""
    gradients, persistent = _gradients(config, layout)
    if config.gns.enabled and layout.data_ranks == 1:
        # Of each microbatch they are whole, before they are added to the others.
        return gradients
    return 0.0 if persistent else gradients


def _gathered(config: Pretrain, layout: BatchLayout) -> tuple[float, float]:
    """Bytes of weights that FSDP has collected, and of gradients on their way to their shards.

    The root's all the time, in float32; of blocks the one that is computed and the next.
    """
    if layout.shard == 1 and layout.tensor == 1:
        return 0.0, 0.0
    block = block_count(config, tensor=layout.tensor).all
    size = SIZES[config.train.precision]
    return 4.0 * edge_count(config).all + 2 * size * block, (size + 4) * block


@dataclass(frozen=True, kw_only=True)
class _Casts:
    """Bytes of autocast's copies of weights: of one block, of the edges."""

    block: float
    edges: float
    depth: int

    @classmethod
    def of(cls, config: Pretrain, layout: BatchLayout) -> "_Casts":
        size = SIZES[config.train.precision] * (config.train.precision != "fp32")
        sharded = layout.shard > 1 or layout.tensor > 1
        return cls(
            block=0.0 if sharded else size * block_count(config).cast,
            edges=size * edge_count(config).cast,
            depth=config.model.depth,
        )

    @property
    def all(self) -> float:
        """When the forward pass ends."""
        return self.kept(self.depth)

    def kept(self, blocks: int) -> float:
        """For the backward pass, which recomputes those of the other blocks."""
        return self.edges + blocks * self.block


def _block(config: Pretrain, tensor: int) -> SavedBytes:
    whole = compiled_kept if config.train.compile else block_kept
    return whole(config, tensor=tensor)


def _recomputed(config: Pretrain) -> int:
    """How many blocks keep less than all."""
    asked, depth = config.activation_checkpointing, config.model.depth
    every = (asked.every or 1) if asked.mode == "selective" else 1
    return 0 if asked.mode == "none" else depth // every


def _kept_when_recomputed(config: Pretrain, tensor: int) -> SavedBytes:
    asked = config.activation_checkpointing
    by_operation = asked.mode == "selective" and asked.every is None
    return (operations_kept if by_operation else checkpoint_kept)(config, tensor=tensor)
