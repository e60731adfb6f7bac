"""Distribute a network over its ranks: DDP, FSDP2, HSDP and tensor parallelism.

Also applies activation checkpointing and compilation, in the order in which they combine.
In every layout, parameters, gradients and moments are float32, and so is the reduction unless
`train.reduce` says otherwise. Sharded blocks gather their weights in the dtype that autocast would
round them to.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from configs.checks.batch import BatchLayout
from configs.checks.compute_node import check_compiler
from configs.errors import ConfigError
from configs.schema import Pretrain
from configs.schema.training import ActivationCheckpointing
from train.engine.distributed import Ranks, make_mesh
from train.engine.metrics import log
from train.model.build import Network
from train.model.roles import role_of

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
}

Forward = Callable[..., Tensor]

_STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "outputs": ColwiseParallel,
    "inputs": RowwiseParallel,
    "gathered": lambda: ColwiseParallel(output_layouts=Replicate()),
    # Queries and keys [B, T, heads, head_dim] are split over the heads.
    "heads": lambda: SequenceParallel(sequence_dim=2, use_local_output=True),
}


def parallelize(
    network: nn.Module,
    config: Pretrain,
    *,
    layout: BatchLayout,
    ranks: Ranks,
    fill: Callable[[], None] | None = None,
) -> nn.Module:
    """Return a network on the `meta` device distributed over its ranks, on their device.

    The network is changed in place; only DDP wraps it. `fill` gives the parameters their values,
    before DDP copies rank 0's to the others; without it they are uninitialised memory.
    """
    blocks = list(cast(Network, network).blocks)
    if config.train.compile is True and ranks.device.type == "cuda":
        check_compiler()
    apply_activation_checkpointing(blocks, config.activation_checkpointing)
    mesh = make_mesh(layout, ranks.device) if layout.world > 1 else None
    if mesh is not None and layout.tensor > 1:
        for block in blocks:
            apply_tensor_parallel(block, mesh["tensor"])
    if mesh is not None and is_sharded(layout):
        _apply_fsdp(network, blocks, mesh["replicate", "shard"], config)
    else:
        # Of convolutions, as tensor cores read them. FSDP2 takes only contiguous weights.
        network.to(memory_format=torch.channels_last)
    network.to_empty(device=ranks.device)
    cast(Network, network).init_buffers()
    if fill is not None:
        fill()
    if config.train.compile is True:
        # A block is small enough to be a bucket of gradients: DDP need not cut it into graphs.
        torch._dynamo.config.optimize_ddp = False
        # Routed blocks have a second number of tokens, which is no reason for dynamic shapes.
        dynamic = None if config.model.routing.kind == "none" else False
        for block in blocks:
            block.compile(dynamic=dynamic)
    if mesh is None or is_sharded(layout):
        return network
    # Buffers are tables that every rank computes; DDP would send them before each forward pass.
    known = inspect.signature(DistributedDataParallel).parameters
    renamed = "forward_sync_buffers" in known  # from torch 2.15 on, where the older name warns
    unsent: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    group = mesh["replicate"].get_group()
    model = DistributedDataParallel(
        network,
        device_ids=[ranks.device] if ranks.device.type == "cuda" else None,
        process_group=group,
        gradient_as_bucket_view=True,
        **unsent,
    )
    if config.train.reduce == "bf16":
        model.register_comm_hook(group, bf16_compress_hook)
    return model


def is_sharded(layout: BatchLayout) -> bool:
    """Return whether FSDP2 holds the parameters; with tensor parallelism it also replicates."""
    return layout.shard > 1 or layout.tensor > 1


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the autocast context of a forward pass, disabled for fp32 and tf32."""
    enabled = DTYPES[precision] is not torch.float32
    return torch.autocast(device.type, DTYPES[precision if enabled else "bf16"], enabled=enabled)


def gradient_sync(model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context for one microbatch; ranks reduce gradients only in the `last` of a step."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def apply_activation_checkpointing(
    blocks: list[nn.Module], checkpointing: ActivationCheckpointing
) -> None:
    """Make the chosen blocks recompute their forward pass during the backward pass."""
    if checkpointing.mode == "none":
        return
    every = checkpointing.every if checkpointing.mode == "selective" else 1
    for block in blocks[every - 1 :: every]:
        block.forward = _checkpointed(block.forward)


def _checkpointed(forward: Forward) -> Forward:
    # Not a functools.partial: the compiler would run the whole block eagerly, with no warning.
    def run(*args: Tensor) -> Tensor:
        output: Tensor = checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False)
        return output

    return run


def apply_tensor_parallel(block: nn.Module, mesh: DeviceMesh) -> None:
    """Split the matrix products of a block over the ranks of `mesh` (Shoeybi et al. 2019).

    Each layer says how. Each rank has whole heads and a part of the hidden layer. The modulation,
    which holds a third of a DiT's parameters, is split by rows and its output gathered.
    """
    splits = {
        name: split for name, layer in block.named_modules() if (split := role_of(layer).split)
    }
    for name, layer in block.named_modules():
        is_split = splits.get(name) == "outputs" and isinstance(layer, nn.Linear)
        if is_split and layer.out_features % mesh.size():
            raise ConfigError(
                f"layout.tensor {mesh.size()} does not divide the {layer.out_features} outputs of "
                f"{name}; change model.width or model.mlp_ratio"
            )
    parallelize_module(block, mesh, {name: _STYLES[split]() for name, split in splits.items()})


def _apply_fsdp(
    network: nn.Module, blocks: list[nn.Module], mesh: DeviceMesh, config: Pretrain
) -> None:
    dtype, reduce = DTYPES[config.train.precision], DTYPES[config.train.reduce]
    root = MixedPrecisionPolicy(reduce_dtype=reduce, cast_forward_inputs=False)
    policy = dataclasses.replace(root, param_dtype=None if dtype is torch.float32 else dtype)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=config.layout.reshard)
    fully_shard(network, mesh=mesh, mp_policy=root)


def can_compile(device: torch.device) -> bool:
    """Return whether `device` is a GPU whose node has a compiler; warn if only that is missing."""
    if device.type != "cuda":
        return False
    try:
        check_compiler()
    except ConfigError as error:
        log.warning("the blocks run eagerly: %s", error)
        return False
    return True
