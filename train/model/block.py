"""The blocks of a DiT: modulated by the condition (adaLN-zero), or plain for in-context tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.attention import Attention
from train.model.linear import Linear
from train.model.mlp import MLPS


class AdaLNBlock(nn.Module):
    """Attention and MLP, each normalised, shifted, scaled and gated by the condition."""

    def __init__(self, *, width: int, heads: int, hidden: int, mlp: str, qk_norm: bool) -> None:
        super().__init__()
        self.modulation = Linear(width, 6 * width)
        self.attention = Attention(width=width, heads=heads, qk_norm=qk_norm)
        self.mlp = MLPS[mlp](width=width, hidden=hidden)

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor | None) -> Tensor:
        """`x` `[B, T, d]`, `condition` `[B, d]` after its SiLU."""
        parts = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = parts
        x = torch.addcmul(x, gate_a, self.attention(modulate(x, shift_a, scale_a), rope))
        return torch.addcmul(x, gate_m, self.mlp(modulate(x, shift_m, scale_m)))


class InContextBlock(nn.Module):
    """Attention and MLP, each after a layer norm; the condition stands among the tokens."""

    def __init__(self, *, width: int, heads: int, hidden: int, mlp: str, qk_norm: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width=width, heads=heads, qk_norm=qk_norm)
        self.mlp_norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLPS[mlp](width=width, hidden=hidden)

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor | None) -> Tensor:
        """`x` `[B, T, d]`; `condition` is not looked at."""
        x = x + self.attention(self.attention_norm(x), rope)
        return x + self.mlp(self.mlp_norm(x))


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without parameters, then the condition's scale and shift `[B, 1, d]`."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)
