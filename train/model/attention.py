"""Self-attention, and the position encodings of patches: rotary (RoPE) and sinusoidal."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.schema.model import Model
from train.model.roles import Role, hidden, with_role

# On a CPU, up to this many tokens, the matrix of scores costs less than the kernel that avoids it.
_MATERIALIZE_TOKENS = 1024


class Attention(nn.Module):
    """Bidirectional multi-head attention, with RoPE if `forward` gets its table.

    The rows of `qkv` are ordered by head: query, key and value of the first head, then of
    the second. Ranks that split the rows hold whole heads.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.head_dim = model.width // model.heads
        self.qkv = hidden(nn.Linear(model.width, 3 * model.width), "outputs", heads=model.heads)
        self.out = hidden(nn.Linear(model.width, model.width), "inputs")
        self.q_norm = RMSNorm(self.head_dim) if model.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(self.head_dim) if model.qk_norm else nn.Identity()
        if model.qk_norm:
            with_role(self.q_norm, Role(split="heads"))
            with_role(self.k_norm, Role(split="heads"))

    def forward(self, x: Tensor, rope: Tensor | None) -> Tensor:
        """Return `[B, T, d]` for `x` `[B, T, d]`.

        `rope` is `[2, T, head_dim]`, or `[2, B, T, head_dim]`.
        """
        # Norm and rotation keep the layout of the linear layers, [B, T, heads, head_dim]: compiled,
        # they fuse into fewer passes over memory (docs/measurements/block-traffic.md).
        q, k, v = self.qkv(x).unflatten(2, (-1, 3, self.head_dim)).unbind(3)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = rotate(q, rope.unsqueeze(-2)), rotate(k, rope.unsqueeze(-2))
        y = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out


class RMSNorm(nn.Module):
    """RMS norm over the last dimension, in the dtype of its input except under CUDA autocast.

    `nn.RMSNorm` with float32 weights and bf16 input does not use the fused kernel and returns
    float32. Autocast on a GPU computes this norm in float32 whatever the weights are.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., channels]` for `x` `[..., channels]`."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), eps=1e-6)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q k / sqrt(head_dim)) v, `[B, heads, T, head_dim]` as all three inputs.

    Uses flash attention, except for bf16 on a CPU: its kernel there runs at the speed of float32,
    a third of the speed of bf16 matrix products.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= _MATERIALIZE_TOKENS:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        return scores.softmax(dim=-1) @ v
    return F.scaled_dot_product_attention(q, k, v)


def rope_table(side: int, head_dim: int, *, prefix: int = 0, theta: float = 100.0) -> Tensor:
    """Return the cosines and sines of RoPE (Su et al. 2021), `[2, prefix + side**2, head_dim]`.

    In float32. The first half of the channel pairs rotates with the row of a patch, the second
    half with its column. The `prefix` tokens before the patches have no position: they do not
    rotate. `theta` is 100 rather than the 10,000 of text: no image has ten thousand rows.
    """
    pairs = head_dim // 4
    frequencies = theta ** -(torch.arange(pairs, dtype=torch.float64) / pairs)
    rows, columns = _grid(side)
    angles = torch.cat([rows * frequencies, columns * frequencies], dim=1)
    angles = torch.cat([angles.new_zeros(prefix, 2 * pairs), angles])
    angles = torch.cat([angles, angles], dim=1)
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate each channel pair (i, i + head_dim/2) of `x` `[..., T, head_dim]` by its angle."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def sincos_table(side: int, width: int) -> Tensor:
    """Return the sinusoids that DiT adds to patches, `[side**2, width]` in float32.

    The four quarters of the channels are sine and cosine of the column, then of the row (Peebles &
    Xie 2023).
    """
    quarter = width // 4
    frequencies = 10_000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    rows, columns = _grid(side)
    angles = [columns * frequencies, rows * frequencies]
    return torch.cat(
        [wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1
    ).float()


def _grid(side: int) -> tuple[Tensor, Tensor]:
    """Return the row and the column of each patch, `[side**2, 1]` in float64."""
    axis = torch.arange(side, dtype=torch.float64)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    return rows.reshape(-1, 1), columns.reshape(-1, 1)
