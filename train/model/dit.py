"""A class-conditional diffusion transformer (DiT, Peebles & Xie 2023)."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.schema import Pretrain
from train.model.attention import Attention, rope_table, sincos_table
from train.model.flops import TIME_CHANNELS, mlp_hidden


class DiT(nn.Module):
    """Predict a tensor of the input's shape from a noisy image, a time and a label."""

    rope: Tensor | None
    pos_embed: Tensor | None

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        model, data = config.model, config.data
        width, patch_values = model.width, data.channels * model.patch**2
        self.patch, self.null_label = model.patch, data.classes
        self.in_context = model.conditioning == "in_context"
        self._model, self._side = model, data.size // model.patch
        self.patches_in = nn.Linear(patch_values, width)
        self.time = nn.Sequential(
            nn.Linear(TIME_CHANNELS, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.label = nn.Embedding(data.classes + 1, width)
        block = InContextBlock if self.in_context else AdaLNBlock
        self.blocks = nn.ModuleList(block(config) for _ in range(model.depth))
        if self.in_context:
            self.norm_out = nn.LayerNorm(width, eps=1e-6)
        else:
            self.modulation_out = nn.Linear(width, 2 * width)
        self.patches_out = nn.Linear(width, patch_values)
        self.init_buffers()
        self._init_weights()

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`.

        `null_label` stands for no label. Under autocast the sinusoids are rounded to the dtype of
        the patches, as RoPE's table is: a float32 table would make every block add in float32.
        """
        tokens = self.patches_in(self._patchify(x))
        if self.pos_embed is not None:
            tokens = tokens + self.pos_embed.to(tokens.dtype)
        time = self.time(timestep_embedding(1000 * t, frequencies=self._model.frequencies))
        class_embedding = self.label(label)
        if self.in_context:
            tokens = torch.cat([time.unsqueeze(1), class_embedding.unsqueeze(1), tokens], dim=1)
        condition = F.silu(time + class_embedding)
        for block in self.blocks:
            tokens = block(tokens, condition, self.rope)
        if self.in_context:
            tokens = self.norm_out(tokens[:, 2:])
        else:
            shift, scale = self.modulation_out(condition).unsqueeze(1).chunk(2, dim=-1)
            tokens = modulate(tokens, shift, scale)
        return self._unpatchify(self.patches_out(tokens), height=x.shape[2], width=x.shape[3])

    def init_buffers(self) -> None:
        """Compute the position tables, which no checkpoint holds, on the device of the weights."""
        model, device = self._model, self.patches_in.weight.device
        rope, pos_embed = None, None
        if model.positions == "rope":
            prefix = 2 if self.in_context else 0
            rope = rope_table(self._side, model.width // model.heads, prefix=prefix).to(device)
        else:
            pos_embed = sincos_table(self._side, model.width).to(device)
        self.register_buffer("rope", rope, persistent=False)
        self.register_buffer("pos_embed", pos_embed, persistent=False)

    def _patchify(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.patch).flatten(2).transpose(1, 2)

    def _unpatchify(self, tokens: Tensor, *, height: int, width: int) -> Tensor:
        grid = (height // self.patch, width // self.patch)
        return F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), self.patch)

    def _init_weights(self) -> None:
        self.apply(_init_linear)
        # A condition of unit scale at any width. With the std of 0.02 that suits DiT-XL, the gates
        # of a narrow network open slowly, and it needs a learning rate that amplifies rounding.
        nn.init.normal_(self.label.weight, std=0.5)
        nn.init.zeros_(self.patches_out.weight)
        if not self.in_context:
            # adaLN-zero: every block starts as the identity, and the output as 0.
            for block in self.blocks:
                assert isinstance(block, AdaLNBlock)
                nn.init.zeros_(block.modulation.weight)
            nn.init.zeros_(self.modulation_out.weight)


class AdaLNBlock(nn.Module):
    """Attention and MLP, each with shift, scale and gate from the condition (adaLN-zero)."""

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        self.modulation = nn.Linear(config.model.width, 6 * config.model.width)
        self.attention = Attention(config.model)
        self.mlp = MLPS[config.model.mlp](config.model.width, mlp_hidden(config))

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor | None) -> Tensor:
        """Return `[B, T, d]` for `x` `[B, T, d]` and `condition` `[B, d]` after its SiLU."""
        chunks = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = chunks
        x = torch.addcmul(x, gate_a, self.attention(modulate(x, shift_a, scale_a), rope))
        return torch.addcmul(x, gate_m, self.mlp(modulate(x, shift_m, scale_m)))


class InContextBlock(nn.Module):
    """Attention and MLP, each after a layer norm; the condition is among the tokens."""

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.model.width, eps=1e-6)
        self.attention = Attention(config.model)
        self.mlp_norm = nn.LayerNorm(config.model.width, eps=1e-6)
        self.mlp = MLPS[config.model.mlp](config.model.width, mlp_hidden(config))

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor | None) -> Tensor:
        """Return `[B, T, d]` for `x` `[B, T, d]`; `condition` is not used."""
        x = x + self.attention(self.attention_norm(x), rope)
        return x + self.mlp(self.mlp_norm(x))


class GeluMLP(nn.Module):
    """Two linear layers with a tanh GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., d]` for `x` `[..., d]`."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGLU(nn.Module):
    """Three linear layers, one of which gates another through a SiLU (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., d]` for `x` `[..., d]`."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


MLPS: dict[str, type[GeluMLP] | type[SwiGLU]] = {"gelu": GeluMLP, "swiglu": SwiGLU}


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Apply layer norm without parameters, then `scale` and `shift` `[B, 1, d]`."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def timestep_embedding(t: Tensor, *, frequencies: Literal["dit", "diffusers"]) -> Tensor:
    """Return cosines and sines `[B, 256]` of `t` `[B]` in 0..1000.

    The frequencies of diffusers' DiT cover a slightly wider range than those of the original.
    """
    half = TIME_CHANNELS // 2
    last = half if frequencies == "dit" else half - 1
    rates = torch.exp(-math.log(10_000) / last * torch.arange(half, device=t.device))
    angles = t.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _init_linear(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
