"""The assistant LoRA: added to the weights of the base model, and taken out again for samples.

Beside the learned LoRA it would cost a sixth of every step. Subtracting it would not give the same
bits, so its matrices are read again from the model's files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from peft.tuners.lora import LoraLayer
from safetensors import safe_open

from configs.checks.flux import weight_files
from configs.schema import Finetune
from finetune.native.lora import ASSISTANT, LEARNED, activate, add_assistant


def prepare_adapters(transformer: FluxTransformer2DModel, config: Finetune) -> None:
    """Merge the assistant of a config, if it has one, and activate the learned LoRA."""
    if config.flux.assistant_lora:
        add_assistant(transformer, Path(config.flux.assistant_lora))
        _merge(transformer)
    activate(transformer, LEARNED)


@contextmanager
def without_assistant(transformer: FluxTransformer2DModel, config: Finetune) -> Iterator[None]:
    """Give the base model its own weights inside the `with` block."""
    if not config.flux.assistant_lora:
        yield
        return
    _restore(transformer, Path(str(config.flux.folder)))
    try:
        yield
    finally:
        _merge(transformer)


def _assisted(transformer: FluxTransformer2DModel) -> dict[str, Any]:
    """Return the layers that the assistant changes, by their names in the model's files."""
    return {
        f"{name}.weight": module
        for name, module in transformer.named_modules()
        if isinstance(module, LoraLayer) and ASSISTANT in module.lora_A
    }


@torch.no_grad()
def _merge(transformer: FluxTransformer2DModel) -> None:
    for layer in _assisted(transformer).values():
        layer.get_base_layer().weight.add_(layer.get_delta_weight(ASSISTANT))


@torch.no_grad()
def _restore(transformer: FluxTransformer2DModel, folder: Path) -> None:
    """Copy the weights that the assistant changes from the files of the model."""
    layers = _assisted(transformer)
    for file in weight_files(folder / "transformer"):
        with safe_open(str(file), framework="pt", device=str(transformer.device)) as tensors:
            for name in layers.keys() & tensors.keys():
                layers.pop(name).get_base_layer().weight.copy_(tensors.get_tensor(name))
    assert not layers
