"""Check that a model folder of Flux in diffusers layout is complete: no job downloads anything."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.files import read_bytes
from configs.schema.finetune import Lora

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

# Models of the same layout that take more than text, by pipeline; the channels of their inputs.
_OTHERS = {
    "FluxFillPipeline": "FLUX.1-Fill (384 channels), which fills in parts of an image",
    "FluxControlPipeline": "FLUX.1-Canny or -Depth (128 channels), which follows edges or depths",
    "FluxKontextPipeline": "FLUX.1-Kontext, which edits an image",
    "Flux2Pipeline": "FLUX.2",
}
_CHANNELS = {384: "FluxFillPipeline", 128: "FluxControlPipeline"}
SINGLE_FILE = (
    "convert it by scripts/convert_flux_to_diffusers.py of diffusers, which writes transformer/ "
    "and vae/, and copy the rest from a folder of FLUX.1-dev or FLUX.1-schnell in diffusers layout"
)


def missing(folder: Path) -> list[str]:
    """Return the files that the folder lacks, relative to it."""
    return [*_missing(folder)]


def _missing(folder: Path) -> Iterator[str]:
    for name in _CONFIGS:
        if not (folder / name).is_file():
            yield name
    for part, stem in _WEIGHTS.items():
        if not (folder / part / "config.json").is_file():
            yield f"{part}/config.json"
        yield from (f"{part}/{file}" for file in _missing_weights(folder / part, stem))
    for part, sets in _TOKENIZERS.items():
        if not any(all((folder / part / file).is_file() for file in files) for files in sets):
            yield f"{part}/{sets[0][0]}"


def _missing_weights(part: Path, stem: str) -> list[str]:
    index = part / f"{stem}.safetensors.index.json"
    if not index.is_file():
        whole = f"{stem}.safetensors"
        return [] if (part / whole).is_file() else [whole]
    return [name for name in shards(index) if not (part / name).is_file()]


def shards(index: Path) -> list[str]:
    """Return the files that an index of sharded weights names."""
    return sorted({str(name) for name in _json(index).get("weight_map", {}).values()})


def check_flux(folder: Path, *, variant: str | None) -> None:
    """Raise `ConfigError` if the folder is no complete Flux of `variant`; None allows either."""
    _check_model(folder)
    lacks = missing(folder)
    single = sorted(file for file in folder.iterdir() if file.suffix in WEIGHTS_SUFFIXES)
    if lacks and single:
        raise ConfigError(f"{folder}: has all weights in {single[0].name}; {SINGLE_FILE}")
    if lacks:
        raise ConfigError(
            f"{folder}: not a complete Flux in diffusers layout; missing: {', '.join(lacks)}. "
            "Compute nodes download nothing: copy the whole model folder, or name another"
        )
    transformer = _json(folder / "transformer" / "config.json")
    takes_guidance = bool(transformer.get("guidance_embeds", False))
    found = "dev" if takes_guidance else "schnell"
    if variant and found != variant:
        raise ConfigError(
            f"{folder}: its transformer {'takes' if takes_guidance else 'takes no'} guidance, as "
            f"{found} does; set the variant to {found}, or name a folder of {variant}"
        )
    for part in _WEIGHTS:
        for file in weight_files(folder / part):
            read_safetensors_header(file)


def weight_files(part: Path) -> list[Path]:
    """Return the files that hold the weights of a part, such as `FLUX.1-dev/transformer`."""
    stem = _WEIGHTS[part.name]
    index = part / f"{stem}.safetensors.index.json"
    return [part / name for name in (shards(index) if index.is_file() else [f"{stem}.safetensors"])]


def linear_layers(folder: Path) -> list[str]:
    """Return the names of the linear layers of a model's transformer."""
    return [
        name.removesuffix(".weight")
        for file in weight_files(folder / "transformer")
        for name, tensor in read_safetensors_header(file).tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == 2
    ]


def check_targets(folder: Path, lora: Lora) -> None:
    """Raise `ConfigError` if `lora.targets` selects no linear layer of the model."""
    if not any(map(lora.selects, linear_layers(folder))):
        raise ConfigError(
            f"lora.targets {lora.targets!r}: neither attention, attention+mlp, blocks, all, nor "
            "the name of a layer, such as transformer_blocks.0.attn.to_q"
        )


def _check_model(folder: Path) -> None:
    """Raise `ConfigError` for a model that takes more than text, or is another architecture."""
    if folder.is_file():
        raise ConfigError(f"{folder}: a single file, but a folder is expected; {SINGLE_FILE}")
    index, config = folder / "model_index.json", folder / "transformer" / "config.json"
    pipeline = _json(index).get("_class_name") if index.is_file() else None
    channels = _json(config).get("in_channels") if config.is_file() else None
    found = _CHANNELS.get(channels or 0) or pipeline or "FluxPipeline"
    if found != "FluxPipeline":
        raise ConfigError(
            f"{folder}: is {_OTHERS.get(found, f'of a {found}')}; only FLUX.1-dev and "
            "FLUX.1-schnell can be tuned: name a folder of one of these"
        )


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(file))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: not a JSON object; copy it again")
    return found
