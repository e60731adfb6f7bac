"""A class-conditional diffusion transformer with adaLN-zero blocks (Peebles & Xie 2023)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.attention import Attention
from train.model.linear import Linear
from train.model.rope import rope_table

FREQUENCIES = 256


class DiT(nn.Module):
    """Predicts a field of the shape of its input from a noisy image, a time and a label."""

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        heads: int,
        patch: int,
        mlp_ratio: float,
        qk_norm: bool,
        size: int,
        channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.patch, self.channels, self.null_label = patch, channels, classes
        self.patches_in = Linear(channels * patch**2, width)
        self.time = nn.Sequential(Linear(FREQUENCIES, width), nn.SiLU(), Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        blocks = [
            Block(width=width, heads=heads, hidden=int(width * mlp_ratio), qk_norm=qk_norm)
            for _ in range(depth)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.modulation_out = Linear(width, 2 * width)
        self.patches_out = Linear(width, channels * patch**2)
        self.register_buffer("rope", rope_table(size // patch, width // heads), persistent=False)
        self.apply(_xavier)
        # A condition of unit scale at any width: with the 0.02 that suits DiT-XL the gates of a
        # narrow network open slowly, and it wants a learning rate at which rounding is amplified.
        nn.init.normal_(self.label.weight, std=0.5)
        # adaLN-zero: every block begins as the identity, and the output as 0.
        for linear in (*(block.modulation for block in blocks), self.modulation_out):
            nn.init.zeros_(linear.weight)
        nn.init.zeros_(self.patches_out.weight)

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """`x` `[B, C, H, W]`, `t` `[B]` in 0..1, `label` `[B]` (`null_label` for none)."""
        tokens = self.patches_in(self._to_patches(x))
        condition = F.silu(self.time(sinusoid(1000 * t)) + self.label(label))
        for block in self.blocks:
            tokens = block(tokens, condition, self.rope)
        shift, scale = self.modulation_out(condition).unsqueeze(1).chunk(2, dim=-1)
        out = self.patches_out(modulate(tokens, shift, scale))
        return self._from_patches(out, height=x.shape[2], width=x.shape[3])

    def _to_patches(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.patch).flatten(2).transpose(1, 2)

    def _from_patches(self, tokens: Tensor, *, height: int, width: int) -> Tensor:
        grid = (height // self.patch, width // self.patch)
        return F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), self.patch)


class Block(nn.Module):
    """Attention and MLP, each normalised, shifted, scaled and gated by the condition."""

    def __init__(self, *, width: int, heads: int, hidden: int, qk_norm: bool) -> None:
        super().__init__()
        self.modulation = Linear(width, 6 * width)
        self.attention = Attention(width=width, heads=heads, qk_norm=qk_norm)
        self.mlp = nn.Sequential(
            Linear(width, hidden), nn.GELU(approximate="tanh"), Linear(hidden, width)
        )

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor) -> Tensor:
        """`x` `[B, T, d]`, `condition` `[B, d]` after its SiLU."""
        parts = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = parts
        x = torch.addcmul(x, gate_a, self.attention(modulate(x, shift_a, scale_a), rope))
        return torch.addcmul(x, gate_m, self.mlp(modulate(x, shift_m, scale_m)))


def _xavier(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without parameters, then the condition's scale and shift `[B, 1, d]`."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def sinusoid(t: Tensor) -> Tensor:
    """`t` `[B]` in the range of 1000 steps as `[B, 256]` cosines and sines."""
    half = FREQUENCIES // 2
    frequencies = torch.exp(-math.log(10_000) / half * torch.arange(half, device=t.device))
    angles = t.float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)
