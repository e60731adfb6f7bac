"""The layers that a LoRA file changes, by its header, and whether a Flux has them."""

import re
from collections import defaultdict
from pathlib import Path

from configs.checks.flux import linear_layers
from configs.disk import TensorEntry, read_safetensors_header
from configs.errors import ConfigError

# The two matrices of a layer's update, by the names of diffusers, ComfyUI and kohya.
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B|lora_down|lora_up)\b.*")
_DOWN = ("lora_A", "lora_down")

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


def check_fits(file: Path, model: Path) -> None:
    """Raise `ConfigError` unless each update of a LoRA file is named like a layer of a model.

    Updates of other models or of text encoders, and updates that are not named as in diffusers,
    would be left out without a word.
    """
    layers = {f"transformer.{name}" for name in linear_layers(model)}
    updates = matrices(file)
    left = [name for name in updates if name not in layers]
    if left:
        raise ConfigError(
            f"{file}: {len(left)} of {len(updates)} updates fit no layer of this model, such as "
            f"{left[0]}; name a LoRA of this kind of Flux in the names of diffusers, such as "
            "transformer.transformer_blocks.0.attn.to_q"
        )
