"""The layers that a LoRA file changes, by its header, and whether a Flux has them."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from configs.checks.flux import linear_layers
from configs.disk import TensorEntry, read_safetensors_header
from configs.errors import ConfigError

QKV = ("attn.to_q", "attn.to_k", "attn.to_v")
# The layers of a double and of a single block, by the names of the original code.
DOUBLE = {
    "img_attn.qkv": QKV,
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
    "img_attn.proj": ("attn.to_out.0",),
    "txt_attn.proj": ("attn.to_add_out",),
    "img_mlp.0": ("ff.net.0.proj",),
    "img_mlp.2": ("ff.net.2",),
    "txt_mlp.0": ("ff_context.net.0.proj",),
    "txt_mlp.2": ("ff_context.net.2",),
    "img_mod.lin": ("norm1.linear",),
    "txt_mod.lin": ("norm1_context.linear",),
}
SINGLE = {
    "linear1": (*QKV, "proj_mlp"),
    "linear2": ("proj_out",),
    "modulation.lin": ("norm.linear",),
}
# By kind of block: its name in the original code, and its layers there.
BLOCKS = {
    "transformer_blocks": ("double_blocks", DOUBLE),
    "single_transformer_blocks": ("single_blocks", SINGLE),
}
# The two matrices of a layer's update, by the names of diffusers, ComfyUI and kohya.
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B|lora_down|lora_up)\b.*")
_DOWN = ("lora_A", "lora_down")
_PREFIX = re.compile(
    r"(base_model\.model\.)?(transformer\.|diffusion_model\.|lora_(unet|transformer)_)?"
)

# By name in the file: the entries of A (True) and B (False).
Matrices = dict[str, dict[bool, TensorEntry]]


def matrices(file: Path) -> Matrices:
    """Return the matrices of a LoRA file by layer; raise `ConfigError` if it holds none."""
    found = defaultdict[str, dict[bool, TensorEntry]](dict)
    tensors = read_safetensors_header(file).tensors
    for name, tensor in tensors.items():
        if match := _MATRIX.fullmatch(name):
            found[match[1]][match[2] in _DOWN] = tensor
    if not found:
        raise ConfigError(
            f"{file}: none of its {len(tensors)} tensors is a matrix of a LoRA (lora_A, lora_B, "
            "lora_down, lora_up); name another file"
        )
    return dict(found)


def updated_layers(file: Path, layers: Iterable[str]) -> set[str]:
    """Return which of a Flux's linear `layers` a file updates, by their names in diffusers.

    Raise `ConfigError` if the file has an update of any other layer: it was made for another
    model, or for a text encoder, and diffusers would leave the update out without a word.
    """
    known = {_plain(name): {name} for name in layers}
    for name in list(layers):
        if match := re.match(r"(\w+_blocks)\.(\d+)\.(.+)", name):
            original, joined = BLOCKS[match[1]]
            for old, parts in joined.items():
                if match[3] in parts:
                    known.setdefault(_plain(f"{original}.{match[2]}.{old}"), set()).add(name)
    found, left = set[str](), list[str]()
    for name in matrices(file):
        mine = known.get(_plain(name[_prefix_length(name) :]))
        found |= mine or set()
        left += [] if mine else [name]
    if left:
        raise ConfigError(
            f"{file}: {len(left)} of {len(found) + len(left)} updates fit no layer of this model, "
            f"such as {left[0]}; name a LoRA of this kind of Flux, or cut those updates out"
        )
    return found


def check_fits(file: Path, model: Path) -> None:
    """Raise `ConfigError` unless each update of a LoRA file fits a layer of a model folder."""
    updated_layers(file, linear_layers(model))


def _plain(name: str) -> str:
    # kohya's names have underscores for dots.
    return name.replace(".", "_")


def _prefix_length(name: str) -> int:
    match = _PREFIX.match(name)
    return match.end() if match else 0
