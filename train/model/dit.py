"""A class-conditional diffusion transformer (Peebles & Xie 2023)."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.block import AdaLNBlock, InContextBlock, modulate
from train.model.linear import Linear
from train.model.positions import rope_table, sincos_table

FREQUENCIES = 256


class DiT(nn.Module):
    """Predicts a field of the shape of its input from a noisy image, a time and a label."""

    rope: Tensor | None
    places: Tensor | None

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
        mlp: Literal["gelu", "swiglu"] = "gelu",
        conditioning: Literal["adaln", "in_context"] = "adaln",
        positions: Literal["rope", "sincos"] = "rope",
        frequencies: Literal["dit", "diffusers"] = "dit",
    ) -> None:
        super().__init__()
        self.patch, self.null_label = patch, classes
        self.in_context, self._frequencies = conditioning == "in_context", frequencies
        self._grid = (size // patch, width, heads, positions)
        self.patches_in = Linear(channels * patch**2, width)
        self.time = nn.Sequential(Linear(FREQUENCIES, width), nn.SiLU(), Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        block = InContextBlock if self.in_context else AdaLNBlock
        hidden = int(width * mlp_ratio)
        self.blocks = nn.ModuleList(
            block(width=width, heads=heads, hidden=hidden, mlp=mlp, qk_norm=qk_norm)
            for _ in range(depth)
        )
        if self.in_context:
            self.norm_out = nn.LayerNorm(width, eps=1e-6)
        else:
            self.modulation_out = Linear(width, 2 * width)
        self.patches_out = Linear(width, channels * patch**2)
        self.init_buffers()
        self._draw_weights()

    def init_buffers(self) -> None:
        """Compute what is neither learned nor saved, on the device of the weights."""
        side, width, heads, positions = self._grid
        device = self.patches_in.weight.device
        rope, places = None, None
        if positions == "rope":
            rope = rope_table(side, width // heads, before=2 if self.in_context else 0).to(device)
        else:
            places = sincos_table(side, width).to(device)
        self.register_buffer("rope", rope, persistent=False)
        self.register_buffer("places", places, persistent=False)

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """`x` `[B, C, H, W]`, `t` `[B]` in 0..1, `label` `[B]` (`null_label` for none)."""
        tokens = self.patches_in(self._to_patches(x))
        if self.places is not None:
            tokens = tokens + self.places
        time = self.time(timestep_embedding(1000 * t, spread=self._frequencies))
        kind = self.label(label)
        if self.in_context:
            tokens = torch.cat([time.unsqueeze(1), kind.unsqueeze(1), tokens], dim=1)
        condition = F.silu(time + kind)
        for block in self.blocks:
            tokens = block(tokens, condition, self.rope)
        out = self.patches_out(self._normalised(tokens, condition))
        return self._from_patches(out, height=x.shape[2], width=x.shape[3])

    def _normalised(self, tokens: Tensor, condition: Tensor) -> Tensor:
        if self.in_context:
            return self.norm_out(tokens[:, 2:])
        shift, scale = self.modulation_out(condition).unsqueeze(1).chunk(2, dim=-1)
        return modulate(tokens, shift, scale)

    def _to_patches(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.patch).flatten(2).transpose(1, 2)

    def _from_patches(self, tokens: Tensor, *, height: int, width: int) -> Tensor:
        grid = (height // self.patch, width // self.patch)
        return F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), self.patch)

    def _draw_weights(self) -> None:
        self.apply(_xavier)
        # A condition of unit scale at any width: with the 0.02 that suits DiT-XL the gates of a
        # narrow network open slowly, and it wants a learning rate at which rounding is amplified.
        nn.init.normal_(self.label.weight, std=0.5)
        nn.init.zeros_(self.patches_out.weight)
        if not self.in_context:
            # adaLN-zero: every block begins as the identity, and the output as 0.
            for block in self.blocks:
                assert isinstance(block, AdaLNBlock)
                nn.init.zeros_(block.modulation.weight)
            nn.init.zeros_(self.modulation_out.weight)


def _xavier(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def timestep_embedding(t: Tensor, *, spread: str = "dit") -> Tensor:
    """`t` `[B]` in the range of 1000 steps as `[B, 256]` cosines and sines.

    diffusers' DiT spreads its frequencies a little wider than the one it follows.
    """
    half = FREQUENCIES // 2
    last = half if spread == "dit" else half - 1
    frequencies = torch.exp(-math.log(10_000) / last * torch.arange(half, device=t.device))
    angles = t.float()[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)
