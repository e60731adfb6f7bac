"""Convert published DiT weights to our names and layouts.

Converts official DiT and fast-DiT (`blocks.0.attn.qkv.weight`), and diffusers'
`DiTTransformer2DModel`. The second half of their outputs, a learned variance, is dropped: no
objective here learns it.
"""

import re

import torch
from torch import Tensor

from configs.errors import ConfigError

State = dict[str, Tensor]

_OFFICIAL = (
    (r"x_embedder\.proj\.(.*)", r"patches_in.\1"),
    (r"t_embedder\.mlp\.(.*)", r"time.\1"),
    (r"y_embedder\.embedding_table\.weight", "label.weight"),
    (r"blocks\.(\d+)\.attn\.qkv\.(.*)", r"blocks.\1.attention.qkv.\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(.*)", r"blocks.\1.attention.out.\2"),
    (r"blocks\.(\d+)\.mlp\.fc1\.(.*)", r"blocks.\1.mlp.up.\2"),
    (r"blocks\.(\d+)\.mlp\.fc2\.(.*)", r"blocks.\1.mlp.down.\2"),
    (r"blocks\.(\d+)\.adaLN_modulation\.1\.(.*)", r"blocks.\1.modulation.\2"),
    (r"final_layer\.adaLN_modulation\.1\.(.*)", r"modulation_out.\1"),
    (r"final_layer\.linear\.(.*)", r"patches_out.\1"),
)
_DIFFUSERS = (
    (r"pos_embed\.proj\.(.*)", r"patches_in.\1"),
    (r"B\.0\.norm1\.emb\.timestep_embedder\.linear_1\.(.*)", r"time.0.\1"),
    (r"B\.0\.norm1\.emb\.timestep_embedder\.linear_2\.(.*)", r"time.2.\1"),
    (r"B\.0\.norm1\.emb\.class_embedder\.embedding_table\.weight", "label.weight"),
    (r"B\.(\d+)\.attn1\.qkv\.(.*)", r"blocks.\1.attention.qkv.\2"),
    (r"B\.(\d+)\.attn1\.to_out\.0\.(.*)", r"blocks.\1.attention.out.\2"),
    (r"B\.(\d+)\.ff\.net\.0\.proj\.(.*)", r"blocks.\1.mlp.up.\2"),
    (r"B\.(\d+)\.ff\.net\.2\.(.*)", r"blocks.\1.mlp.down.\2"),
    (r"B\.(\d+)\.norm1\.linear\.(.*)", r"blocks.\1.modulation.\2"),
    (r"proj_out_1\.(.*)", r"modulation_out.\1"),
    (r"proj_out_2\.(.*)", r"patches_out.\1"),
)


def from_official(state: State, *, heads: int) -> State:
    """Convert the weights of an official DiT or fast-DiT checkpoint."""
    kept = {name: value for name, value in state.items() if name != "pos_embed"}
    return _convert_layouts(_rename(kept, _OFFICIAL), heads)


def from_diffusers(state: State, *, heads: int) -> State:
    """Convert the weights of a diffusers DiT, which holds the same embeddings in every block."""
    state = {name.replace("transformer_blocks.", "B."): value for name, value in state.items()}
    kept: State = {}
    for name, value in state.items():
        first = re.sub(r"^B\.\d+\.norm1\.emb\.", "B.0.norm1.emb.", name)
        if first != name and not torch.equal(value, state[first]):
            raise ConfigError(
                "model.init_from: each block of this diffusers DiT has its own embedding of time "
                "and label; our DiT has one for all blocks"
            )
        if first == name and not re.search(r"\.attn1\.to_[qkv]\.|^pos_embed\.pos_embed$", name):
            kept[name] = value
    for name in [name for name in state if ".attn1.to_q." in name]:
        # Queries, keys and values are separate layers in diffusers, one in ours.
        parts = [state[name.replace("to_q", f"to_{part}")] for part in "qkv"]
        kept[name.replace("to_q", "qkv")] = torch.cat(parts)
    return _convert_layouts(_rename(kept, _DIFFUSERS), heads)


def is_official(state: State) -> bool:
    """Return whether the names are those of the official DiT."""
    return "x_embedder.proj.weight" in state and "final_layer.linear.weight" in state


def _rename(state: State, rules: tuple[tuple[str, str], ...]) -> State:
    renamed: State = {}
    for name, value in state.items():
        for pattern, replacement in rules:
            if match := re.fullmatch(pattern, name):
                renamed[match.expand(replacement)] = value
                break
        else:
            raise ConfigError(
                f"model.init_from: {name} is not a weight of a DiT that can be converted"
            )
    return renamed


def _convert_layouts(state: State, heads: int) -> State:
    """Order qkv by head, flatten patches to matrices, and order the output by channel."""
    for name in [name for name in state if ".qkv." in name]:
        state[name] = state[name].unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
    patches = state["patches_in.weight"]
    channels, patch = patches.shape[1], patches.shape[2]
    state["patches_in.weight"] = patches.flatten(1)
    for name in ("patches_out.weight", "patches_out.bias"):
        value = state[name]
        outputs = value.shape[0] // patch**2  # twice the channels if the variance is learned
        by_channel = value.unflatten(0, (patch**2, outputs)).transpose(0, 1)[:channels]
        state[name] = by_channel.flatten(0, 1)
    return {name: value.contiguous() for name, value in state.items()}
