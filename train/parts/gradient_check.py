"""Compare the gradients of the network as it trains with the gradients of plain eager code.

Compilers have returned wrong gradients without a word for such networks (pytorch issues 193061 and
190796). The method is explained in docs/training.md.
"""

import gc
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.engine.attempt import TrainingContext
from train.engine.distributed import data_rank, from_rank_0
from train.engine.failure import RunFailure
from train.engine.numerics import set_precision
from train.engine.part import Part
from train.model.build import build_network
from train.model.parallelize import apply_activation_checkpointing, autocast
from train.model.routing import routed
from train.parts import Pretraining
from train.pretrain.train_state import TrainState, zero_batch
from train.weights.load import copy_shard

# An error may be _FACTOR times the error of rounding. It is also accepted below _LEAST of the norm,
# and below _NOTHING of the norm of all gradients together.
_FACTOR, _LEAST, _NOTHING = 4.0, 2.0**-7, 2.0**-16


def make(training: Pretraining) -> Part | None:
    """Return the part of `train.check_gradients`."""
    return GradientCheck(training)


class GradientCheck(Part):
    """Checks the gradients once, before the first step; its passes are in no measurement."""

    order = 0

    def __init__(self, training: Pretraining) -> None:
        self._training = training

    def begin(self) -> None:
        """Check them, unless the config says never or this torch and GPU were checked before."""
        check_gradients(self._training.context, self._training.train_state)


def check_gradients(context: TrainingContext[Pretrain], train_state: TrainState) -> None:
    """Record the event `checked`, or raise `RunFailure` if a gradient is wrong. Collective.

    Do nothing if plain code computes the gradients, or if this torch and GPU were checked before.
    """
    ranks, layout, train = context.attempt.ranks, context.layout, train_state.config.train
    device, begun = ranks.device, time.perf_counter()
    if train.check_gradients == "never" or not (train.compile or layout.tensor > 1):
        return
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "none"
    records = context.attempt.run.records() if ranks.rank == 0 else ()
    if from_rank_0(any(record.get("setting") == [torch.__version__, gpu] for record in records)):
        return
    # The zeros of adaLN-zero make most gradients zero, right or wrong: fill them meanwhile.
    generator = torch.Generator(device).manual_seed(0)
    matrices = [p.detach() for p in train_state.network.parameters() if p.ndim > 1]
    zeros = [matrix for matrix in matrices if not _whole(matrix).view(torch.int32).any()]
    for matrix in zeros:
        whole = torch.randn(matrix.shape, device=device, generator=generator)
        copy_shard(matrix, whole * matrix.shape[1:].numel() ** -0.5)
    batch = zero_batch(train_state.config, images=layout.micro_batch, device=device)
    batch.t.uniform_(generator=generator.manual_seed(data_rank(ranks, layout)))
    batch.image.normal_(generator=generator)
    batch.noise.normal_(generator=generator)
    # First, so that memory which compiled code forgets to write cannot hold the right gradients of
    # another pass.
    train_state.plain_losses(batch).mean().backward()
    passes = [_take_gradients(train_state.network), _plain_gradients(train_state, batch, "fp32")]
    # In float32, too, a pass rounds differently if its images move by their last bits.
    batch.image.mul_(1 + 2**-22 * batch.noise)
    passes.append(_plain_gradients(train_state, batch, train.precision))
    for matrix in zeros:
        matrix.zero_()
    gc.collect()  # networks under FSDP are full of reference cycles
    found = _judge([name for name, _ in train_state.network.named_parameters()], *passes)
    found |= {"check_s": time.perf_counter() - begun, "setting": [torch.__version__, gpu]}
    context.metrics.event("checked", **found)


def _plain_gradients(train_state: TrainState, batch: Microbatch, precision: str) -> list[Tensor]:
    gc.collect()
    config, device = train_state.config, batch.image.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.device("meta"):
        plain: Any = build_network(config)
    apply_activation_checkpointing(list(plain.blocks), config.activation_checkpointing)
    if dist.get_world_size() > 1:
        for module in (*plain.blocks, plain):
            fully_shard(module)
    plain.to_empty(device=device).init_buffers()
    for p, source in zip(plain.parameters(), train_state.network.parameters(), strict=True):
        copy_shard(p.detach(), _whole(source.detach()))
    set_precision(precision, device)
    keep = [] if batch.keep is None else [batch.keep]
    inputs = (batch.image, batch.noise, batch.t, batch.label, *keep)
    for share in zip(*(x.split(-(-len(x) // 8)) for x in inputs), strict=True):
        with autocast(precision, device):
            losses = train_state.objective.losses(routed(plain, *share[4:]), *share[:4])
        (losses.sum() / len(batch.t)).backward()
    set_precision(config.train.precision, device)
    return _take_gradients(plain)


def _take_gradients(network: nn.Module) -> list[Tensor]:
    world, rank = dist.get_world_size(), dist.get_rank()
    found = (torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters())
    parts = [_whole(each).flatten().tensor_split(world)[rank].clone() for each in found]
    network.zero_grad(set_to_none=True)
    return parts


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _judge(names: list[str], *passes: list[Tensor]) -> dict[str, Any]:
    differences = ((g, e, g - e, r - e) for g, e, r in zip(*passes, strict=True))
    squares = [torch.stack([x.double().square().sum() for x in each]) for each in differences]
    sums = torch.stack(squares, dim=1)
    if dist.get_world_size() > 1:  # one GPU alone needs no communicator, which takes memory
        dist.all_reduce(sums)
    norm, exact, error, rounding = sums.nan_to_num(torch.inf).sqrt().cpu()
    allowed = _FACTOR * torch.maximum(rounding, (rounding / exact).nanmedian() * exact)
    allowed += _LEAST * exact + _NOTHING * exact.norm()
    share = (error / allowed).nan_to_num(0)  # 0 if rounding alone is not finite, either
    cosine, ratio = (norm**2 + exact**2 - error**2) / (2 * norm * exact), norm / exact
    order, wrong = share.argsort(descending=True).tolist(), int((share > 1).sum())
    worst = [f"{names[i]} (cosine {cosine[i]:.3g}, norm x {ratio[i]:.3g})" for i in order[:5]]
    if wrong:
        count = f"{wrong} of {len(names)} gradients differ from plain eager code's"
        raise RunFailure("gradients", f"{count}, the worst first: {', '.join(worst[:wrong])}")
    cosine, ratio = (x.where(allowed < exact, 1) for x in (cosine, ratio))
    found = {"error": share.max(), "cosine": cosine.min(), "resolved": (allowed < exact).sum()}
    found["norm_ratio"] = ratio[(ratio - 1).abs().argmax()]
    return {"worst": names[order[0]], **{name: value.item() for name, value in found.items()}}
