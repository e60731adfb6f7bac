"""Check that a model folder of Flux in diffusers layout is complete: no job downloads anything."""

import json
from pathlib import Path
from typing import Any

from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.files import read_bytes

_WEIGHTS = {
    "transformer": "diffusion_pytorch_model",
    "text_encoder": "model",
    "text_encoder_2": "model",
    "vae": "diffusion_pytorch_model",
}
WEIGHTS_SUFFIXES = (".safetensors", ".sft", ".gguf")
_CONFIGS = ("model_index.json", "scheduler/scheduler_config.json")
# A tokenizer needs all the files of one of these sets.
_TOKENIZERS = {
    "tokenizer": (("tokenizer.json",), ("vocab.json", "merges.txt")),
    "tokenizer_2": (("tokenizer.json",), ("spiece.model",)),
}
# The channels of a packed latent. Fill, Canny and Depth take more.
_CHANNELS = 64
_SINGLE_FILE = (
    "convert it by scripts/convert_flux_to_diffusers.py of diffusers, which writes transformer/ "
    "and vae/, and copy the rest from a folder of FLUX.1-dev or FLUX.1-schnell in diffusers layout"
)


def missing(folder: Path) -> list[str]:
    """Return the files that the folder lacks, relative to it."""
    needed = [folder / name for name in _CONFIGS]
    for part in _WEIGHTS:
        needed += [folder / part / "config.json", *weight_files(folder / part)]
    lacks = [file.relative_to(folder).as_posix() for file in needed if not file.is_file()]
    for part, sets in _TOKENIZERS.items():
        if not any(all((folder / part / file).is_file() for file in files) for files in sets):
            lacks.append(f"{part}/{sets[0][0]}")
    return lacks


def check_flux(folder: Path) -> None:
    """Raise `ConfigError` if the folder is no complete FLUX.1 in diffusers layout."""
    if folder.is_file():
        raise ConfigError(f"{folder}: a single file, but a folder is expected; {_SINGLE_FILE}")
    lacks = missing(folder)
    single = sorted(file for file in folder.iterdir() if file.suffix in WEIGHTS_SUFFIXES)
    if lacks and single:
        raise ConfigError(f"{folder}: has all weights in {single[0].name}; {_SINGLE_FILE}")
    if lacks:
        raise ConfigError(
            f"{folder}: not a complete Flux in diffusers layout; missing: {', '.join(lacks)}. "
            "Compute nodes download nothing: copy the whole model folder, or name another"
        )
    pipeline = _json(folder / "model_index.json").get("_class_name")
    channels = _json(folder / "transformer" / "config.json").get("in_channels")
    if pipeline != "FluxPipeline" or channels not in (None, _CHANNELS):
        raise ConfigError(
            f"{folder}: a {pipeline} of {channels} channels; only FLUX.1-dev and FLUX.1-schnell "
            f"(a FluxPipeline of {_CHANNELS} channels) can be tuned: name a folder of one of these"
        )
    for part in _WEIGHTS:
        for file in weight_files(folder / part):
            read_safetensors_header(file)


def weight_files(part: Path) -> list[Path]:
    """Return the files that hold the weights of a part, such as `FLUX.1-dev/transformer`."""
    whole = f"{_WEIGHTS[part.name]}.safetensors"
    index = part / f"{whole}.index.json"
    names = set(_json(index).get("weight_map", {}).values()) if index.is_file() else {whole}
    return [part / str(name) for name in sorted(names)]


def weights_in(model: Path) -> list[Path]:
    """Return the files of weights in a model's folder, in any layout, or the single file."""
    files = [model] if model.is_file() else sorted(model.rglob("*"))
    return [file for file in files if file.suffix in WEIGHTS_SUFFIXES]


def linear_layers(folder: Path) -> list[str]:
    """Return the names of the linear layers of a model's transformer."""
    return [
        name.removesuffix(".weight")
        for file in weight_files(folder / "transformer")
        for name, tensor in read_safetensors_header(file).tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == 2
    ]


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(file))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: not a JSON object; copy it again")
    return found
