"""JiT (Li & He 2025, arXiv 2511.13720): a plain transformer on pixels that predicts the image.

It is trained with `objective.prediction: x`. Against a DiT: large patches are embedded through a
bottleneck, tokens have learned RMS norms, sinusoids and RoPE, and copies of the label's embedding
join the patches from some block on.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.schema import Pretrain
from train.model.attention import Attention, RMSNorm, rope_table, sincos_table
from train.model.blocks import SwiGLU
from train.model.dit import init_linear, timestep_embedding
from train.model.flops import TIME_CHANNELS
from train.model.published import State, by_channel, by_head, renamed
from train.model.roles import modulation

_THETA = 10_000.0
# The names of the published code (https://github.com/LTH14/JiT), and ours.
_PUBLISHED = (
    (r"x_embedder\.proj1\.weight", r"patches_in.0.weight"),
    (r"x_embedder\.proj2\.(.*)", r"patches_in.1.\1"),
    (r"t_embedder\.mlp\.(.*)", r"time.\1"),
    (r"y_embedder\.embedding_table\.weight", "label.weight"),
    (r"in_context_posemb", "class_tokens"),
    (r"blocks\.(\d+)\.norm1\.weight", r"blocks.\1.attention_norm.weight"),
    (r"blocks\.(\d+)\.norm2\.weight", r"blocks.\1.mlp_norm.weight"),
    (r"blocks\.(\d+)\.attn\.(qkv|[qk]_norm)\.(.*)", r"blocks.\1.attention.\2.\3"),
    (r"blocks\.(\d+)\.attn\.proj\.(.*)", r"blocks.\1.attention.out.\2"),
    (r"blocks\.(\d+)\.mlp\.(gate|up)\.(.*)", r"blocks.\1.mlp.\2.\3"),
    (r"blocks\.(\d+)\.mlp\.w3\.(.*)", r"blocks.\1.mlp.down.\2"),
    (r"blocks\.(\d+)\.adaLN_modulation\.1\.(.*)", r"blocks.\1.modulation.\2"),
    (r"final_layer\.norm_final\.weight", "norm_out.weight"),
    (r"final_layer\.adaLN_modulation\.1\.(.*)", r"modulation_out.\1"),
    (r"final_layer\.linear\.(.*)", r"patches_out.\1"),
)


class JiT(nn.Module):
    """Predict the image from a noisy one, a time and a label."""

    rope: Tensor
    pos_embed: Tensor

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        model, data = config.model, config.data
        width, values = model.width, data.channels * model.patch**2
        self._model, self._side = model, data.size // model.patch
        self.patch, self.channels, self.null_label = model.patch, data.channels, data.classes
        self.patches_in = nn.Sequential(
            nn.Linear(values, model.jit.bottleneck, bias=False),
            nn.Linear(model.jit.bottleneck, width),
        )
        self.time = nn.Sequential(
            nn.Linear(TIME_CHANNELS, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.label = nn.Embedding(data.classes + 1, width)
        self.class_tokens = nn.Parameter(torch.empty(1, model.jit.class_tokens, width))
        self.blocks = nn.ModuleList(JiTBlock(config) for _ in range(model.depth))
        self.norm_out = RMSNorm(width)
        self.modulation_out = nn.Linear(width, 2 * width)
        self.patches_out = nn.Linear(width, values)
        self.init_buffers()
        self._init_weights()

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return `[B, C, H, W]` for `x` `[B, C, H, W]`, `t` `[B]` in 0..1 and `label` `[B]`."""
        tokens = self.patches_in(F.pixel_unshuffle(x, self.patch).flatten(2).transpose(1, 2))
        tokens = tokens + self.pos_embed.to(tokens.dtype)
        named = self.label(label)
        # Its time is 1 at the image; sinusoids are of this time, not of a thousand times it.
        condition = F.silu(self.time(timestep_embedding(1 - t)) + named)
        first, count = self._model.jit.class_tokens_from, self._model.jit.class_tokens
        for number, block in enumerate(self.blocks):
            if number == first:
                more = (named.unsqueeze(1) + self.class_tokens).to(tokens.dtype)
                tokens = torch.cat([more, tokens], dim=1)
            tokens = block(tokens, condition, self.rope[:, 0 if number >= first else count :])
        tokens = self.norm_out(tokens[:, count:])
        shift, scale = self.modulation_out(condition).unsqueeze(1).chunk(2, dim=-1)
        pixels = self.patches_out(torch.addcmul(shift, tokens, 1 + scale)).transpose(1, 2)
        return F.pixel_shuffle(pixels.unflatten(2, (self._side, self._side)), self.patch)

    def init_buffers(self) -> None:
        """Compute the position tables, which no checkpoint holds, on the device of the weights."""
        model, device = self._model, self.label.weight.device
        head_dim, prefix = model.width // model.heads, model.jit.class_tokens
        rope = rope_table(self._side, head_dim, prefix=prefix, theta=_THETA).to(device)
        self.register_buffer("rope", rope, persistent=False)
        positions = sincos_table(self._side, model.width).to(device)
        self.register_buffer("pos_embed", positions, persistent=False)

    def from_published(self, state: State) -> State | None:
        """Return weights of the published code by our names; None if they are not."""
        if "x_embedder.proj1.weight" not in state:
            return None
        split: State = {}
        for name, value in state.items():
            if "mlp.w12." in name:  # gate and up in one matrix
                halves = zip(("gate", "up"), value.chunk(2), strict=True)
                split |= {name.replace("w12", part): half for part, half in halves}
            elif not name.startswith(("pos_embed", "feat_rope")):
                split[name] = value
        found = by_head(renamed(split, _PUBLISHED), self._model.heads)
        pairs = range(0, self._model.width // self._model.heads, 2)
        ours = [*pairs, *(pair + 1 for pair in pairs)]  # there RoPE's pairs are neighbours
        for name, value in found.items():
            if name.startswith("patches_in.") and value.ndim > 1:
                found[name] = value.flatten(1)
            elif ".qkv." in name:
                rows = value.unflatten(0, (self._model.heads, 3, -1)).clone()
                rows[:, :2] = rows[:, :2, ours]
                found[name] = rows.flatten(0, 2)
            elif ".q_norm." in name or ".k_norm." in name:
                found[name] = value[ours]
        return by_channel(found, patch=self.patch, channels=self.channels)

    def _init_weights(self) -> None:
        self.apply(init_linear)
        for name in ("time.0.weight", "time.2.weight", "label.weight", "class_tokens"):
            nn.init.normal_(self.get_parameter(name), std=0.02)
        # adaLN-zero: every block starts as the identity, and the output as 0.
        for name, parameter in self.named_parameters():
            if "modulation" in name or "patches_out" in name:
                nn.init.zeros_(parameter)


class JiTBlock(nn.Module):
    """Attention and SwiGLU, each with a learned RMS norm, and shift, scale and gate."""

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        model = config.model
        self.attention_norm, self.mlp_norm = RMSNorm(model.width), RMSNorm(model.width)
        self.attention = Attention(model)
        self.mlp = SwiGLU(model.width, int(model.width * model.mlp_ratio) * 2 // 3)
        self.modulation = modulation(nn.Linear(model.width, 6 * model.width))

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor) -> Tensor:
        """Return `[B, T, d]` for `x` `[B, T, d]` and `condition` `[B, d]` after its SiLU."""
        chunks = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = chunks
        normed = torch.addcmul(shift_a, self.attention_norm(x), 1 + scale_a)
        x = torch.addcmul(x, gate_a, self.attention(normed, rope))
        normed = torch.addcmul(shift_m, self.mlp_norm(x), 1 + scale_m)
        return torch.addcmul(x, gate_m, self.mlp(normed))
