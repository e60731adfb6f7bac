"""Where |g_k|^2 is read off while gradients are on their way to be summed, at next to no cost.

What is seen is before clipping and in float32; it holds the factors that the loss was multiplied
by. Each tap sees the microbatches that the layout has anyway.
"""

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn.parallel import DistributedDataParallel

from configs.errors import ConfigError
from train.engine.gradients import sum_of_squares


class GradientHook(Protocol):
    """Sees the gradients of this rank's microbatches before they are summed with others."""

    def after_backward(self) -> None:
        """A backward is over."""

    def restore_gradients(self) -> None:
        """All of a step are: the gradients stand where the optimizer looks for them."""

    def take_squares(self) -> Tensor:
        """The sum of |g_k|^2 over this rank's microbatches since last asked, in float64."""
        ...


class AccumulationHook:
    """On one rank: every microbatch's gradient is seen before it is added to the others.

    Gradients are added here and not by autograd, which leaves no trace of the single one. It
    takes the memory of one more set of gradients.
    """

    def __init__(self, network: nn.Module) -> None:
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._sum: dict[nn.Parameter, Tensor] = {}
        self._squares = torch.zeros((), dtype=torch.float64, device=self._parameters[0].device)

    def after_backward(self) -> None:
        """Add the gradients to those before, and take them out of autograd's way."""
        with_gradient = [p for p in self._parameters if p.grad is not None]
        fresh = [p.grad for p in with_gradient if p.grad is not None]
        self._squares += sum_of_squares(fresh)
        known = [(p, g) for p, g in zip(with_gradient, fresh, strict=True) if p in self._sum]
        if known:
            torch._foreach_add_([self._sum[p] for p, _ in known], [g for _, g in known])
        for parameter, gradient in zip(with_gradient, fresh, strict=True):
            self._sum.setdefault(parameter, gradient)
            parameter.grad = None

    def restore_gradients(self) -> None:
        """Give the parameters the sums."""
        for parameter, gradient in self._sum.items():
            parameter.grad = gradient
        self._sum = {}

    def take_squares(self) -> Tensor:
        """The sum of |g_k|^2 since last asked."""
        return _taken(self._squares)


class DDPHook:
    """Under DDP: every bucket of this rank's gradients is seen before the all-reduce."""

    def __init__(self, model: DistributedDataParallel) -> None:
        device = next(model.parameters()).device
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        model.register_comm_hook(model.process_group, self._reduce)

    def _reduce(
        self, group: dist.ProcessGroup, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        self._squares += sum_of_squares([bucket.buffer()])
        return allreduce_hook(group, bucket)

    def after_backward(self) -> None:
        """Nothing is left to do."""

    def restore_gradients(self) -> None:
        """Nothing is left to do."""

    def take_squares(self) -> Tensor:
        """The sum of |g_k|^2 since last asked."""
        return _taken(self._squares)


class FSDPHook:
    """Under FSDP2 and HSDP: what this rank gives to every reduce-scatter is its whole gradient."""

    def __init__(self, network: nn.Module) -> None:
        device = next(network.parameters()).device
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        for part in network.modules():
            if isinstance(part, FSDPModule):
                if not hasattr(part, "set_custom_reduce_scatter"):
                    raise ConfigError(
                        f"gns.enabled under layout.shard needs torch 2.9; this is "
                        f"{torch.__version__}: set layout.shard to 1, or gns.enabled to false"
                    )
                part.set_custom_reduce_scatter(_ObservedReduceScatter(self._squares))

    def after_backward(self) -> None:
        """Nothing is left to do."""

    def restore_gradients(self) -> None:
        """Nothing is left to do."""

    def take_squares(self) -> Tensor:
        """The sum of |g_k|^2 since last asked."""
        return _taken(self._squares)


class _ObservedReduceScatter(DefaultReduceScatter):
    """A reduce-scatter that adds the squares of its input to a number, on its own stream."""

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
    """The tap of a network's layout; `model` is `network` in its parallel wrapping."""
    if isinstance(model, DistributedDataParallel):
        return DDPHook(model)
    if isinstance(model, FSDPModule):
        return FSDPHook(network)
    return AccumulationHook(network)


def _taken(total: Tensor) -> Tensor:
    taken = total.clone()
    total.zero_()
    return taken
