"""The memory of one rank that trains a DiT, by kind, and its peak, in closed form without torch.

Parameters are those of the layers of `train/model`, counted one by one. Tests compare the sums with
the network, and the memory with `train/forecast/dry_run.py`, which follows every storage.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from configs.schema.model import Model
from train.forecast.activations import (
    PRECISION_BYTES,
    SavedBytes,
    block_kept,
    block_work,
    checkpoint_kept,
    compiled_kept,
    edges_kept,
    edges_work,
    operations_kept,
)
from train.model import flops

GIB = 2**30
# The context of the driver and the workspaces of libraries, and the buffers of each communicator of
# NCCL (0.1 to 0.4 GiB). Assumed, not derived.
_CONTEXT = 0.75 * GIB
_COMMUNICATOR = 0.3 * GIB
# The share of torch's allocations that its cache holds in blocks too small to reuse. Assumed.
_FRAGMENTATION = 0.03


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """The parameters of a part of a network; autocast copies `cast` of them to lower precision."""

    all: int
    cast: int


def block_count(config: Pretrain, *, tensor: int = 1) -> ParameterCount:
    """Return the parameters of one block on one of the `tensor` ranks that split it."""
    model, hidden = config.model, flops.mlp_hidden(config)
    d, head_dim, gates = model.width, model.width // model.heads, model.mlp == "swiglu"
    split = [(d, 3 * d)] + [(d, hidden)] * (1 + gates)
    if model.conditioning == "adaln":
        split.append((d, 6 * d))
    # `split` layers are split by rows, with their biases; the other two by columns, with whole
    # biases on every rank.
    rows = sum((inner + 1) * outer for inner, outer in split) // tensor
    columns = (d * d + hidden * d) // tensor
    norms = 2 * head_dim * model.qk_norm + 2 * _norm(model)
    table = 6 * d * (model.conditioning == "adaln_single")
    cast = sum(inner * outer for inner, outer in split) // tensor + columns
    return ParameterCount(all=rows + columns + 2 * d + norms + table, cast=cast)


def _norm(model: Model) -> int:
    """Return the parameters of a norm of tokens: those of an adaLN block have none."""
    affine = {"layer": 2, "rms": 1}[model.norm] * model.width
    return affine if model.conditioning == "in_context" else 0


def edge_count(config: Pretrain) -> ParameterCount:
    """Return the parameters before and after the blocks, which every tensor rank holds whole."""
    model, data = config.model, config.data
    d, pixels = model.width, data.channels * model.patch**2
    first, later = [(pixels, d), (flops.TIME_CHANNELS, d)], [(d, d), (d, pixels)]
    table = 2 * d * (model.conditioning == "adaln_single")
    if model.conditioning != "in_context":
        later.append((d, (2 if model.conditioning == "adaln" else 6) * d))
    if model.routing.kind == "sprint":
        later.append((2 * d, d))
    vectors = (data.classes + 1 + model.registers) * d + _norm(model) + table
    # Autocast's copies of the first layers are freed: nothing before them needs a gradient.
    return ParameterCount(
        all=sum((inner + 1) * outer for inner, outer in first + later) + vectors,
        cast=sum(inner * outer for inner, outer in later),
    )


def dit_parameters(config: Pretrain) -> int:
    """Return the number of parameters of the network."""
    return config.model.depth * block_count(config).all + edge_count(config).all


def held_parameters(config: Pretrain, layout: BatchLayout) -> float:
    """Return the parameters that one rank holds, as the mean over the ranks."""
    blocks = config.model.depth * block_count(config, tensor=layout.tensor).all
    return (blocks + edge_count(config).all) / layout.shard


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one rank: the largest size of each kind, and `peak`, the largest sum at any time.

    Gradients grow while activations are freed, so `peak` can be less than the sum. `average` is
    the EMA, `gathered` the weights that FSDP gathers, `cast` the copies that autocast makes, and
    `work` the gradients of activations. torch reports `peak` as allocated; `overhead` is outside.
    """

    parameters: float
    gradients: float
    optimizer: float
    average: float
    activations: float
    gathered: float = 0.0
    cast: float = 0.0
    work: float = 0.0
    overhead: float
    peak: float

    @property
    def total(self) -> float:
        """The memory that the GPU must have."""
        return self.peak + self.overhead


def dit_memory(config: Pretrain, layout: BatchLayout) -> Memory:
    """Return the memory of one rank with the micro batch of `layout`."""
    images, tensor = layout.micro_batch, layout.tensor
    held = 4 * held_parameters(config, layout)
    average = held * (config.train.ema_decay is not None)
    matrices = [m * n for m, n in flops.muon_matrices(config)]
    moments = 2 * held - 4 * sum(matrices) / layout.shard  # Muon has one, the others two
    # Muon's largest matrix in float32, and five of the iteration's type.
    step_work = (4 + 5 * PRECISION_BYTES[config.train.precision]) * max(matrices, default=0)
    # The projection of REPA is whole on every rank, with its gradients and moments.
    constant = held + moments + average + 16 * flops.projection_weights(config)
    gradients, persistent = _gradients(config, layout)
    fresh = _fresh_gradients(config, layout)
    gathered, reduced = _gathered(config, layout)
    unfreed = _not_resharded(config, layout)
    block_cast, edge_cast = _casts(config, layout)
    block, recomputed = _block(config, tensor), _recomputed_blocks(config)
    plain, kept = config.model.depth - recomputed, _kept_when_recomputed(config, tensor)
    all_casts, plain_casts = (edge_cast + n * block_cast for n in (config.model.depth, plain))
    edges = edges_kept(config).image * images
    activations = edges + plain * _bytes(block, images) + recomputed * _bytes(kept, images)
    # In its own backward pass a recomputed block holds all its activations.
    longest = flops.tokens(config) / flops.mean_tokens(config)
    whole = longest * (_bytes(block, images) - _bytes(kept, images)) if recomputed else 0.0
    last, work = edges_work(config) * images, block_work(config, tensor=tensor) * images
    base = constant + gradients * persistent + gathered
    first_block = longest * _bytes(block, images) + _batch_bytes(config) * images + block_cast
    peak = base + max(
        activations + all_casts + unfreed,  # the end of the forward pass
        activations + plain_casts + last + unfreed,  # the backward pass of the last norm
        (activations + plain_casts + whole + block_cast + work + unfreed) * (recomputed > 0),
        fresh + reduced + first_block,  # the backward pass of the first block
        fresh - gathered + step_work,  # the optimizer step
    )
    return Memory(
        parameters=held,
        gradients=gradients,
        optimizer=moments,
        average=average,
        activations=activations + whole,
        gathered=gathered + max(reduced, unfreed),
        cast=all_casts,
        work=last,
        overhead=overhead(layout, peak=peak),
        peak=peak,
    )


def overhead(layout: BatchLayout, *, peak: float) -> float:
    """Return the bytes beside the `peak` of torch's tensors: driver, libraries, fragmentation."""
    # A dimension of the mesh communicates by itself; the group of all ranks never does on GPUs.
    communicators = sum(size > 1 for size in (layout.replicate, layout.shard, layout.tensor))
    return _CONTEXT + communicators * _COMMUNICATOR + _FRAGMENTATION * peak


def dit_written(config: Pretrain, layout: BatchLayout) -> float:
    """Return the bytes of activations written for one micro batch, recomputed ones twice."""
    blocks = config.model.depth + _recomputed_blocks(config)
    block = _bytes(_block(config, layout.tensor), layout.micro_batch)
    return blocks * block + edges_kept(config).image * layout.micro_batch


def _bytes(kept: SavedBytes, images: int) -> float:
    return kept.image * images + kept.once


def _batch_bytes(config: Pretrain) -> int:
    """Return the bytes per image of the batch itself: image and noise in float32."""
    return 8 * config.data.channels * config.data.size**2


def _gradients(config: Pretrain, layout: BatchLayout) -> tuple[float, bool]:
    """Return the bytes of gradients, and whether they exist when a backward pass begins."""
    held = 4 * held_parameters(config, layout)
    accumulates = layout.accumulation > 1
    if layout.shard > 1 or layout.tensor > 1:
        # Gradients are reduced only with the last microbatch and are unsharded until then.
        # Until then they have the type of the reduction.
        whole = held * layout.shard * _reduce_bytes(config) / 4 if accumulates else held
        return whole, accumulates
    # DDP keeps its buckets, and the gradients are views of them.
    return held, accumulates or layout.world > 1


def _fresh_gradients(config: Pretrain, layout: BatchLayout) -> float:
    """Return the bytes of gradients that a backward pass adds to the existing ones."""
    gradients, persistent = _gradients(config, layout)
    if config.gns.enabled and layout.data_ranks == 1:
        # The gradients of each microbatch are separate before they are added to the sum.
        return gradients
    return 0.0 if persistent else gradients


def _gathered(config: Pretrain, layout: BatchLayout) -> tuple[float, float]:
    """Return the bytes of weights that FSDP has gathered, and of gradients not yet scattered.

    The root stays gathered, in float32; of the blocks, the current one and the next are gathered.
    """
    if layout.shard == 1 and layout.tensor == 1:
        return 0.0, 0.0
    block = block_count(config, tensor=layout.tensor).all
    size = PRECISION_BYTES[config.train.precision]
    return 4.0 * edge_count(config).all + 2 * size * block, (size + _reduce_bytes(config)) * block


def _not_resharded(config: Pretrain, layout: BatchLayout) -> float:
    """Return the bytes of gathered blocks that wait for their backward pass, beside two others."""
    if config.layout.reshard or (layout.shard == 1 and layout.tensor == 1):
        return 0.0
    block = block_count(config, tensor=layout.tensor).all
    return PRECISION_BYTES[config.train.precision] * block * max(0, config.model.depth - 2)


def _reduce_bytes(config: Pretrain) -> int:
    return PRECISION_BYTES[config.train.reduce]


def _casts(config: Pretrain, layout: BatchLayout) -> tuple[float, float]:
    """Return the bytes of autocast's copies of the weights of one block, and of the edges."""
    size = PRECISION_BYTES[config.train.precision]
    size *= size < 4
    sharded = layout.shard > 1 or layout.tensor > 1
    block = 0.0 if sharded else size * block_count(config).cast
    return block, size * edge_count(config).cast


def _block(config: Pretrain, tensor: int) -> SavedBytes:
    return (compiled_kept if config.train.compile else block_kept)(config, tensor=tensor)


def _recomputed_blocks(config: Pretrain) -> int:
    """Return the number of blocks that are recomputed, in whole or in part."""
    checkpointing, depth = config.activation_checkpointing, config.model.depth
    every = (checkpointing.every or 1) if checkpointing.mode == "selective" else 1
    return 0 if checkpointing.mode == "none" else depth // every


def _kept_when_recomputed(config: Pretrain, tensor: int) -> SavedBytes:
    checkpointing = config.activation_checkpointing
    by_operation = checkpointing.mode == "selective" and checkpointing.every is None
    return (operations_kept if by_operation else checkpoint_kept)(config, tensor=tensor)
