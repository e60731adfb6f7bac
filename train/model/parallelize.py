"""How a network is laid out over its ranks: DDP, FSDP2, HSDP, tensor parallelism, recomputation.

Whatever the layout, parameters, gradients, moments and their reduction are float32; sharded
blocks gather their weights in the type that autocast would round them to.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
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
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from configs.schema.training import ActivationCheckpointing
from train.engine.distributed import Ranks, make_mesh
from train.model.block import AdaLNBlock, InContextBlock
from train.model.build import Network
from train.model.float8 import check_float8, use_float8

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Forward = Callable[..., Tensor]

# What selective recomputation by operation keeps: all that costs more to compute than to hold.
_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.ditbench.times_transposed.default,
}


def parallelize(
    network: nn.Module, config: Pretrain, *, layout: BatchLayout, ranks: Ranks
) -> nn.Module:
    """The network as its ranks share it, on their device; weights on `meta` stay undefined.

    The network itself is changed in place; only DDP wraps it.
    """
    blocks = list(cast(Network, network).blocks)
    if config.train.float8:
        check_float8(ranks.device)
        use_float8(blocks)
    apply_activation_checkpointing(blocks, config.activation_checkpointing)
    mesh = make_mesh(layout, ranks.device) if layout.world > 1 else None
    if mesh is not None and layout.tensor > 1:
        for block in blocks:
            apply_tensor_parallel(block, mesh["tensor"])
    if mesh is not None and is_sharded(layout):
        _shard(network, blocks, mesh["replicate", "shard"], config)
    _materialise(network, ranks.device)
    if config.train.compile:
        for block in blocks:
            block.compile()
    if mesh is None or is_sharded(layout):
        return network
    return DistributedDataParallel(
        network,
        device_ids=[ranks.device] if ranks.device.type == "cuda" else None,
        process_group=mesh["replicate"].get_group(),
        gradient_as_bucket_view=True,
    )


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The arithmetic of a forward pass: autocast, but for fp32."""
    lower = precision != "fp32"
    return torch.autocast(device.type, DTYPES[precision if lower else "bf16"], enabled=lower)


def gradient_sync(model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Inside the `with` a microbatch; after the `last` of a step, ranks reduce their gradients."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def is_sharded(layout: BatchLayout) -> bool:
    """Whether FSDP2 holds the parameters; under tensor parallelism it does the replicas too."""
    return layout.shard > 1 or layout.tensor > 1


def apply_activation_checkpointing(blocks: list[nn.Module], asked: ActivationCheckpointing) -> None:
    """Let the chosen blocks compute their forward pass again in the backward pass."""
    if asked.mode == "none":
        return
    every, contexts = 1, {}
    if asked.mode == "selective" and asked.every is not None:
        every = asked.every
    elif asked.mode == "selective":
        contexts = {"context_fn": functools.partial(create_selective_checkpoint_contexts, _policy)}
    for block in blocks[every - 1 :: every]:
        block.forward = _again(block.forward, contexts)


def _again(forward: Forward, contexts: dict[str, Any]) -> Forward:
    # Not a partial: the compiler would leave the whole block to Python, without a word.
    def run(*arguments: Tensor) -> Tensor:
        said: Tensor = checkpoint(
            forward, *arguments, use_reentrant=False, preserve_rng_state=False, **contexts
        )
        return said

    return run


def _policy(
    context: SelectiveCheckpointContext, op: object, *args: object, **kwargs: object
) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def apply_tensor_parallel(block: nn.Module, mesh: DeviceMesh) -> None:
    """Split a block's matrix products over the ranks of `mesh` (Shoeybi et al. 2019).

    Each rank has whole heads and a part of the hidden layer; the modulation is split by rows
    and gathered, for it holds a third of a DiT's parameters.
    """
    assert isinstance(block, (AdaLNBlock, InContextBlock))
    plan: dict[str, ParallelStyle] = {
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(),
    }
    if hasattr(block.mlp, "gate"):
        plan["mlp.gate"] = ColwiseParallel()
    if isinstance(block, AdaLNBlock):
        plan["modulation"] = ColwiseParallel(output_layouts=Replicate())
    if list(block.attention.q_norm.parameters()):
        # Queries and keys [B, heads, T, head_dim] are split over the heads.
        for name in ("attention.q_norm", "attention.k_norm"):
            plan[name] = SequenceParallel(sequence_dim=1, use_local_output=True)
    parallelize_module(block, mesh, plan)


def _shard(network: nn.Module, blocks: list[nn.Module], mesh: DeviceMesh, config: Pretrain) -> None:
    dtype = DTYPES[config.train.precision]
    policy = MixedPrecisionPolicy()
    if dtype is not torch.float32:
        policy = MixedPrecisionPolicy(
            param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh)


def _materialise(network: nn.Module, device: torch.device) -> None:
    if any(parameter.is_meta for parameter in network.parameters()):
        network.to_empty(device=device)
        cast(Network, network).init_buffers()
    else:
        network.to(device)
