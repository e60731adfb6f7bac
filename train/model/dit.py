"""A class-conditional diffusion transformer (DiT, Peebles & Xie 2023)."""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.schema import Pretrain
from train.model.attention import rope_table, sincos_table
from train.model.blocks import AdaLNBlock, modulate
from train.model.flops import TIME_CHANNELS
from train.model.published import State, from_published
from train.model.routing import put_back, take, token_positions

Taps = tuple[int, ...]


class DiT(nn.Module):
    """Predict a tensor of the input's shape from a noisy image, a time and a label."""

    rope: Tensor | None
    pos_embed: Tensor | None

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        model, data = config.model, config.data
        width, patch_values = model.width, data.channels * model.patch**2
        self.patch, self.null_label = model.patch, data.classes
        self.prefix = model.registers
        self._model, self._side = model, data.size // model.patch
        self.patches_in = nn.Linear(patch_values, width)
        self.time = nn.Sequential(
            nn.Linear(TIME_CHANNELS, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.label = nn.Embedding(data.classes + 1, width)
        self.blocks = nn.ModuleList(AdaLNBlock(config) for _ in range(model.depth))
        if model.registers:
            self.registers = nn.Parameter(torch.empty(model.registers, width))
        if model.conditioning == "adaln_single":
            self.modulation = nn.Linear(width, 6 * width)
            self.table_out = nn.Parameter(torch.empty(2 * width))
        else:
            self.modulation_out = nn.Linear(width, 2 * width)
        self.patches_out = nn.Linear(width, patch_values)
        self.init_buffers()
        self._init_weights()

    def forward(
        self, x: Tensor, t: Tensor, label: Tensor, taps: Taps = (), keep: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`.

        With `taps`, rising numbers of blocks from 1, return also the tokens of the patches after
        each of these blocks, `[B, T, width]`. The routed blocks read the patches `keep` `[B, K]`,
        or all.

        `null_label` stands for no label. Under autocast the sinusoids are rounded to the dtype of
        the patches, as RoPE's table is: a float32 table would make every block add in float32.
        """
        tokens = self.patches_in(self._patchify(x))
        if self.pos_embed is not None:
            tokens = tokens + self.pos_embed.to(tokens.dtype)
        time = self.time(timestep_embedding(1000 * t))
        embedding = time + self.label(label)
        if self.prefix:
            registers = self.registers.to(tokens.dtype).expand(len(tokens), -1, -1)
            tokens = torch.cat([registers, tokens], dim=1)
        condition = F.silu(embedding)
        tokens, tapped = self._through_blocks(
            tokens, self._block_condition(condition), keep=keep, taps=taps
        )
        tokens = self._last_norm(tokens[:, self.prefix :], embedding, condition)
        output = self._unpatchify(self.patches_out(tokens), height=x.shape[2], width=x.shape[3])
        return (output, *tapped) if taps else output

    def init_buffers(self) -> None:
        """Compute the position tables, which no checkpoint holds, on the device of the weights."""
        model, device = self._model, self.patches_in.weight.device
        rope, pos_embed = None, None
        if model.positions == "rope":
            head_dim = model.width // model.heads
            rope = rope_table(self._side, head_dim, prefix=self.prefix).to(device)
        else:
            pos_embed = sincos_table(self._side, model.width).to(device)
        self.register_buffer("rope", rope, persistent=False)
        self.register_buffer("pos_embed", pos_embed, persistent=False)

    def from_published(self, state: State) -> State | None:
        """Return weights of the official DiT or fast-DiT by our names, else None."""
        return from_published(state, heads=self._model.heads)

    def _through_blocks(
        self, tokens: Tensor, condition: Tensor, *, keep: Tensor | None, taps: Taps
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the tokens after the last block, and the patches after the blocks `taps`."""
        route, rope = self._model.routed_blocks(), self.rope
        tapped: list[Tensor] = []
        positions = None if keep is None else token_positions(keep, prefix=self.prefix)
        for number, block in enumerate(self.blocks):
            if positions is not None and number == route.start:
                dense, tokens = tokens, take(tokens, positions)
                rope = None if rope is None else rope[:, positions]
            tokens = block(tokens, condition, rope)
            if positions is not None and number + 1 == route.stop:
                tokens, rope = put_back(tokens, dense, positions), self.rope
            if number + 1 in taps:
                tapped.append(tokens[:, self.prefix :])
        return tokens, tapped

    def _block_condition(self, condition: Tensor) -> Tensor:
        """Return the `condition` of the blocks for the embedding `[B, d]` after its SiLU."""
        if self._model.conditioning != "adaln_single":
            return condition
        return cast(Tensor, self.modulation(condition))

    def _last_norm(self, tokens: Tensor, embedding: Tensor, condition: Tensor) -> Tensor:
        """Return the tokens `[B, T, d]` normalised; `condition` is the embedding after its SiLU."""
        if self._model.conditioning == "adaln_single":
            changes = self.table_out.view(1, 2, -1) + embedding.unsqueeze(1)
            shift, scale = changes.chunk(2, dim=1)
        else:
            shift, scale = self.modulation_out(condition).unsqueeze(1).chunk(2, dim=-1)
        return modulate(tokens, shift, scale)

    def _patchify(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, self.patch).flatten(2).transpose(1, 2)

    def _unpatchify(self, tokens: Tensor, *, height: int, width: int) -> Tensor:
        grid = (height // self.patch, width // self.patch)
        return F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, grid), self.patch)

    def _init_weights(self) -> None:
        self.apply(init_linear)
        # A condition of unit scale at any width. With the std of 0.02 that suits DiT-XL, the gates
        # of a narrow network open slowly, and it needs a learning rate that amplifies rounding.
        nn.init.normal_(self.label.weight, std=0.5)
        nn.init.zeros_(self.patches_out.weight)
        if self._model.registers:
            nn.init.normal_(self.registers, std=0.02)
        # adaLN-zero: every block starts as the identity, and the output as 0.
        if self._model.conditioning == "adaln_single":
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.table_out)
        else:
            nn.init.zeros_(self.modulation_out.weight)
        for block in self.blocks:
            if isinstance(block, AdaLNBlock) and isinstance(block.modulation, nn.Linear):
                nn.init.zeros_(block.modulation.weight)


def timestep_embedding(t: Tensor) -> Tensor:
    """Return cosines and sines `[B, 256]` of `t` `[B]` in 0..1000."""
    half = TIME_CHANNELS // 2
    rates = torch.exp(-math.log(10_000) / half * torch.arange(half, device=t.device))
    angles = t.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def init_linear(module: nn.Module) -> None:
    """Initialise a linear layer as DiT does; leave any other module."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
