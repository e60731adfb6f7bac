"""A linear layer that runs float32 on a CPU through oneDNN."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_ONEDNN = torch.backends.mkldnn.is_available()


class Linear(nn.Linear):
    """`nn.Linear` that uses oneDNN for float32 on a CPU, where torch uses MKL.

    MKL uses only half the vector width of some processors: on an AMD EPYC oneDNN is 1.9 times as
    fast, forward and backward. torch itself uses oneDNN only for the smaller dtypes.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., out]` for `x` `[..., in]`."""
        is_float32 = x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        is_split = isinstance(self.weight, DTensor)  # which the operator below does not take
        if _ONEDNN and x.device.type == "cpu" and is_float32 and not is_split:
            return times_transposed(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


# A custom operator, because the compiler takes oneDNN's only for constant weights.
@torch.library.custom_op("ditbench::times_transposed", mutates_args=())
def times_transposed(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `a` `[..., k]` times the transpose of `b` `[n, k]`, plus `bias` `[n]`."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


@times_transposed.register_fake
def _fake(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[0]))


def _save_for_backward(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    a, b = ctx.saved_tensors
    a_rows, grad_rows = a.flatten(0, -2), grad.flatten(0, -2)
    grad_a = times_transposed(grad, b.t()) if ctx.needs_input_grad[0] else None
    return grad_a, times_transposed(grad_rows.t(), a_rows.t()), grad_rows.sum(0)


times_transposed.register_autograd(_backward, setup_context=_save_for_backward)
