"""Read |g_k|^2 of single microbatches before their gradients are summed, at almost no cost.

The norms are taken before clipping and in float32, and include the factors that the loss was
multiplied by. Each hook observes the microbatches that the layout has anyway.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn.parallel import DistributedDataParallel

from train.engine.gradients import sum_of_squares


class GradientHook:
    """Sums |g_k|^2 over the microbatches of this rank, before gradients are summed."""

    def __init__(self, network: nn.Module) -> None:
        device = next(network.parameters()).device
        self._squares = torch.zeros((), dtype=torch.float64, device=device)

    def after_backward(self) -> None:
        """Process the gradients of a microbatch; call this after each backward pass."""

    def restore_gradients(self) -> None:
        """Make the sum of gradients available to the optimizer; call this once per step."""

    def take_squares(self) -> Tensor:
        """Return the sum of |g_k|^2 since the last call, in float64, and reset it."""
        taken = self._squares.clone()
        self._squares.zero_()
        return taken


class AccumulationHook(GradientHook):
    """On one rank: reads the gradient of each microbatch before adding it to the sum.

    The gradients are added here instead of by autograd, which keeps only their sum. This takes
    the memory of one more set of gradients.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._sum: dict[nn.Parameter, Tensor] = {}

    def after_backward(self) -> None:
        """Add the gradients to the sum and clear them, so that autograd starts from zero."""
        fresh = {p: p.grad for p in self._parameters if p.grad is not None}
        self._squares += sum_of_squares(list(fresh.values()))
        known = [p for p in fresh if p in self._sum]
        if known:
            torch._foreach_add_([self._sum[p] for p in known], [fresh[p] for p in known])
        for parameter, gradient in fresh.items():
            self._sum.setdefault(parameter, gradient)
            parameter.grad = None

    def restore_gradients(self) -> None:
        """Assign the sums to the parameters."""
        for parameter, gradient in self._sum.items():
            parameter.grad = gradient
        self._sum = {}


class DDPHook(GradientHook):
    """Under DDP: reads every bucket of this rank's gradients before the all-reduce."""

    def __init__(self, model: DistributedDataParallel) -> None:
        super().__init__(model)
        model.register_comm_hook(model.process_group, self._reduce)

    def _reduce(
        self, group: dist.ProcessGroup, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        self._squares += sum_of_squares([bucket.buffer()])
        return allreduce_hook(group, bucket)


class FSDPHook(GradientHook):
    """Under FSDP2 and HSDP: reads the input of every reduce-scatter, this rank's whole gradient."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        for part in network.modules():
            if isinstance(part, FSDPModule):
                part.set_custom_reduce_scatter(_ObservedReduceScatter(self._squares))


class _ObservedReduceScatter(DefaultReduceScatter):
    """A reduce-scatter that adds the squares of its input to `total`, on its own stream."""

    def __init__(self, total: Tensor) -> None:
        self._total = total

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        self._total += sum_of_squares([input_tensor])
        return super().__call__(output_tensor, input_tensor, group, op, async_op)


def make_hook(model: nn.Module, network: nn.Module) -> GradientHook:
    """Return the hook for the layout of `model`, which is `network` in its parallel wrapping."""
    if isinstance(model, DistributedDataParallel):
        return DDPHook(model)
    if isinstance(model, FSDPModule):
        return FSDPHook(network)
    return AccumulationHook(network)
