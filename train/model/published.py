"""Convert published DiT weights to our names and layouts.

The second half of the outputs of the official DiT and fast-DiT, a learned variance, is dropped: no
objective here learns it.
"""

import re

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


def from_published(state: State, *, heads: int) -> State | None:
    """Convert the weights of an official DiT; return None if they are not of one."""
    if "x_embedder.proj.weight" not in state or "final_layer.linear.weight" not in state:
        return None
    kept = {name: value for name, value in state.items() if name != "pos_embed"}
    return _convert_layouts(renamed(kept, _OFFICIAL), heads)


def renamed(state: State, rules: tuple[tuple[str, str], ...]) -> State:
    """Return weights by the names that the first matching rule gives; raise `ConfigError`."""
    found: State = {}
    for name, value in state.items():
        match = next((m for pattern, new in rules if (m := _matched(pattern, new, name))), None)
        if match is None:
            raise ConfigError(f"model.init_from: {name} is no weight that can be converted")
        found[match] = value
    return found


def _matched(pattern: str, new: str, name: str) -> str | None:
    match = re.fullmatch(pattern, name)
    return match.expand(new) if match else None


def _convert_layouts(state: State, heads: int) -> State:
    """Order qkv by head, flatten patches to matrices, and order the output by channel."""
    channels, patch = state["patches_in.weight"].shape[1:3]
    state["patches_in.weight"] = state["patches_in.weight"].flatten(1)
    return by_channel(by_head(state, heads), patch=patch, channels=channels)


def by_head(state: State, heads: int) -> State:
    """Order the rows of every `qkv` by head: query, key and value of the first, then the next."""
    return {
        name: value.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)
        if ".qkv." in name
        else value
        for name, value in state.items()
    }


def by_channel(state: State, *, patch: int, channels: int) -> State:
    """Order the rows of `patches_out` by channel, then by place in the patch."""
    ordered: State = {}
    for name in ("patches_out.weight", "patches_out.bias"):
        value = state[name]
        outputs = value.shape[0] // patch**2  # twice the channels if the variance is learned
        rows = value.unflatten(0, (patch**2, outputs)).transpose(0, 1)[:channels]
        ordered[name] = rows.flatten(0, 1)
    return {name: value.contiguous() for name, value in (state | ordered).items()}
