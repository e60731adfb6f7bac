"""The layers that a LoRA file changes, by its header, and whether a model has them."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from configs.checks.flux import linear_layers
from configs.disk import TensorEntry, read_safetensors_header
from configs.errors import ConfigError

# The two matrices of a layer's update, by the names of diffusers, ComfyUI and kohya.
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B|lora_down|lora_up)\b.*")
_DOWN = ("lora_A", "lora_down")
# Weights of these types are packed, so that their shapes are not those of the layers.
_PACKED = ("U8", "I8", "I32")

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


def check_sizes(file: Path, weights: Iterable[Path]) -> None:
    """Raise `ConfigError` if no update of a LoRA file has the size of a weight of a model.

    This holds for every kind of model, whose layers have other names in each layout. Weights that
    are not safetensors, or packed, do not tell.
    """
    updates = [pair for pair in matrices(file).values() if len(pair) == 2]
    sizes = {(*pair[False].shape[:1], *pair[True].shape[1:2]) for pair in updates}
    known = set[tuple[int, ...]]()
    for each in weights:
        tensors = read_safetensors_header(each).tensors.values() if each.suffix != ".gguf" else ()
        if not tensors or any(tensor.dtype in _PACKED for tensor in tensors):
            return
        known.update(tensor.shape[:2] for tensor in tensors)
    if sizes and known and sizes.isdisjoint(known):
        rows, columns = min(sizes)
        raise ConfigError(
            f"{file}: none of its {len(updates)} updates has the size of a weight of this model, "
            f"such as {rows} x {columns}; name a LoRA of this kind of model"
        )
