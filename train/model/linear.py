"""A linear layer that is as fast in float32 on a CPU as the CPU is."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_ONEDNN = torch.backends.mkldnn.is_available()


class Linear(nn.Linear):
    """`nn.Linear`, by oneDNN where torch would give float32 to MKL.

    MKL leaves half the width of some processors unused (on an AMD EPYC oneDNN is 1.9 times as
    fast, forward and backward); of itself torch gives oneDNN only the smaller types.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`x` `[..., in]`."""
        in_float32 = x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        split = isinstance(self.weight, DTensor)  # over ranks, which the operator below is not
        if _ONEDNN and x.device.type == "cpu" and in_float32 and not split:
            return times_transposed(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


# An operator of its own, as the compiler takes oneDNN's for constant weights only.
@torch.library.custom_op("ditbench::times_transposed", mutates_args=())
def times_transposed(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """`a` `[..., k]` times the transpose of `b` `[n, k]`, plus `bias` `[n]`."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


@times_transposed.register_fake
def _shaped(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[0]))


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    a, b = ctx.saved_tensors
    a_rows, grad_rows = a.flatten(0, -2), grad.flatten(0, -2)
    to_a = times_transposed(grad, b.t()) if ctx.needs_input_grad[0] else None
    return to_a, times_transposed(grad_rows.t(), a_rows.t()), grad_rows.sum(0)


times_transposed.register_autograd(_gradients, setup_context=_keep)
