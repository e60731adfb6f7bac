"""Self-attention with rotary positions, and the kernel that it runs on."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.linear import Linear
from train.model.positions import rotate

# On a CPU, up to this many tokens, the table of scores costs less than the work it saves.
_TABLE_TOKENS = 1024


class Attention(nn.Module):
    """Bidirectional multi-head attention, with rotary positions where a table is given.

    `qkv` holds query, key and value of one head after those of another, so that ranks which
    split its rows hold whole heads.
    """

    def __init__(self, *, width: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.head_dim = width // heads
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.q_norm = HeadNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = HeadNorm(self.head_dim) if qk_norm else nn.Identity()

    def forward(self, x: Tensor, rope: Tensor | None) -> Tensor:
        """`x` `[B, T, d]`."""
        q, k, v = self.qkv(x).unflatten(2, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        return self.out(attend(q, k, v).transpose(1, 2).flatten(2))


class HeadNorm(nn.Module):
    """RMS norm over the channels of a head, in the type of its input but for CUDA autocast.

    `nn.RMSNorm` with float32 weights on bf16 values leaves the fused kernel and returns float32;
    so does autocast on a GPU, which computes this norm in float32 whatever the weights are.
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """`x` `[..., head_dim]`."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), eps=1e-6)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each query's mean of the values, weighted by softmax(q k / sqrt(head_dim)).

    `q`, `k`, `v` `[B, heads, T, head_dim]`, and so the result. Flash attention, but for bf16 on
    a CPU: its kernel there works at the speed of float32, a third of that of bf16 products.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= _TABLE_TOKENS:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        return scores.softmax(dim=-1) @ v
    return F.scaled_dot_product_attention(q, k, v)
