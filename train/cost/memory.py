"""The memory of one rank of a pretraining, by the kept cost of its step; needs no torch."""

from typing import Any

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.cost.kept import kept_cost
from train.cost.line import Memory, RunCost, Stack

GIB = 2**30
# The context of the driver and the workspaces of libraries, and the buffers of each communicator of
# NCCL (0.1 to 0.4 GiB). Assumed, not derived.
_CONTEXT = 0.75 * GIB
_COMMUNICATOR = 0.3 * GIB
# The share of torch's allocations that its cache holds in blocks too small to reuse. Assumed.
_FRAGMENTATION = 0.03


def overhead(layout: BatchLayout, *, peak: float) -> float:
    """Return the bytes beside the `peak` of torch's tensors: driver, libraries, fragmentation."""
    # A dimension of the mesh communicates by itself; the group of all ranks never does on GPUs.
    communicators = sum(size > 1 for size in (layout.replicate, layout.shard, layout.tensor))
    return _CONTEXT + communicators * _COMMUNICATOR + _FRAGMENTATION * peak


def pretrain_memory(config: Pretrain, layout: BatchLayout) -> Memory:
    """Return the memory of one rank with the micro batch of `layout`."""
    stacks = stacks_of(config, layout)

    def count() -> RunCost:
        # Imported here: torch takes seconds to import.
        from train.cost.pretrain import count_cost

        return count_cost(config, layout, stacks)

    cost = kept_cost(facts(config, layout, stacks), count)
    depths = {name: stack.depth for name, stack in stacks.items()}
    return cost.memory(layout.micro_batch, layout.accumulation, depths)


def stacks_of(config: Pretrain, layout: BatchLayout) -> dict[str, Stack]:
    """Return the stacks of alike blocks of a transformer; a U-Net has none."""
    model, checkpointing = config.model, config.activation_checkpointing
    if model.family == "unet":
        return {}
    # FSDP gathers a block while the one before is at work.
    ends = 1 if layout.shard == layout.tensor == 1 else 2
    front = back = ends
    if model.routing.kind != "none":
        front, back = model.routing.before + ends, model.routing.after + ends
    if config.repa.weight:
        front = max(front, config.repa.block)
    if model.family == "jit":
        front = model.jit.class_tokens_from + ends
    period = checkpointing.every if checkpointing.mode == "selective" else 1
    return {"blocks": Stack(depth=model.depth, front=front, back=back, period=period)}


def counts_compiled(config: Pretrain) -> bool:
    """Return whether the blocks count as compiled.

    A U-Net's blocks count as eager, which is more: they are all different, and tracing them takes
    minutes.
    """
    return bool(config.train.compile) and config.model.family != "unet"


def measures_noise(config: Pretrain, layout: BatchLayout) -> bool:
    """Return whether a rank compares the gradients of single microbatches."""
    return config.gns.enabled and layout.data_ranks == 1


def facts(config: Pretrain, layout: BatchLayout, stacks: dict[str, Stack]) -> dict[str, Any]:
    """Return all that a step's cost depends on, beside its micro batch and depth."""
    train, data = config.train, config.data
    found = config.model_dump(
        mode="json", include={"model", "objective", "repa", "activation_checkpointing"}
    )
    found["model"] |= {"init_from": None, "init_weights": None}
    for name, stack in stacks.items():
        found["model"].pop("depth")
        found[name] = [stack.small(), stack.period, stack.small() == stack.depth]
    return found | {
        "data": [data.size, data.channels, data.classes],
        "optimizer": config.optimizer.kind,
        "compiled": counts_compiled(config),
        "train": [train.precision, train.reduce, train.ema_decay is not None],
        "layout": [layout.replicate > 1, layout.shard, layout.tensor, config.layout.reshard],
        "measures_noise": measures_noise(config, layout),
    }
