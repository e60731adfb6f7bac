"""Check the kind of model that `aitoolkit.model.arch` names, by the checkout at hand."""

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from configs.checks.aitoolkit import (
    arch_of,
    check_assistant,
    check_keys,
    check_supported,
    find_home,
)
from configs.checks.aitoolkit_source import Architecture, architectures, defaults, known_keys
from configs.checks.flux import WEIGHTS_SUFFIXES
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.schema import Finetune


def check_aitoolkit(config: Finetune) -> None:
    """Raise `ConfigError` if ai-toolkit cannot run the config, by what is known on this machine."""
    check_keys(config)
    if config.engine != "aitoolkit":
        return
    check_supported(config)
    model = Path(str(config.flux.folder))
    if arch_of(config) and model.exists():
        _check_weights(model)
    # If it is unset here, the site of the job may still set it.
    if not os.environ.get("AI_TOOLKIT"):
        return
    folder = find_home().folder
    if config.validation.held_out and "validation_config" not in known_keys(folder)["train"]:
        raise ConfigError(
            f"validation.held_out: the ai-toolkit in {folder} evaluates no held-out images; set "
            "it to 0, or update ai-toolkit"
        )
    if arch := _architecture(folder, config):
        _check_settings(folder, config)
        assistant = Path(config.flux.assistant_lora or "")
        for key in arch.keys if assistant.is_file() else ():
            check_assistant(assistant, key)


def hub_notes(config: Finetune) -> Iterator[str]:
    """Yield what the code of the config's kind of model may load from the hub and is not here."""
    if not (arch_of(config) and os.environ.get("AI_TOOLKIT")):
        return
    arch = _architecture(find_home().folder, config)
    for name in arch.hub_ids if arch else ():
        place = _hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
        if not place.is_dir() or not any(place.iterdir()):
            yield (
                f"ai-toolkit's code for {arch_of(config)} may load {name}, which is not in "
                f"{_hub_cache()}; if compute nodes have no network: hf download {name}"
            )


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()


def _architecture(folder: Path, config: Finetune) -> Architecture | None:
    """Return the kind of model; refuse one that ai-toolkit would take for Stable Diffusion 1."""
    name = arch_of(config)
    if name is None:
        return None
    known = architectures(folder)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = (
            f"did you mean {near[0]}?" if near else "`ditbench show finetune --arch ?` lists them"
        )
        raise ConfigError(
            f"aitoolkit.model.arch {name}: the ai-toolkit in {folder} has no such model and would "
            f"take it for Stable Diffusion 1; {hint}"
        )
    return known[name]


def _check_settings(folder: Path, config: Finetune) -> None:
    """Refuse the samples of another model: the defaults are those of FLUX.1-schnell."""
    lacking = [key for key in ("steps", "guidance") if key not in config.sample.model_fields_set]
    if lacking:
        named = defaults(folder)
        arch = str(config.aitoolkit["model"]["arch"])
        own = named.get(arch) or named.get(arch_of(config) or "") or {}
        values = own.get("sample.sample_steps"), own.get("sample.guidance_scale")
        hint = "such as {} and {}".format(*values) if all(values) else "see the model's page"
        raise ConfigError(
            f"sample.{lacking[0]}: its default is for FLUX.1-schnell; set sample.steps and "
            f"sample.guidance for {arch} ({hint})"
        )


def _check_weights(folder: Path) -> None:
    """Refuse a model without weights, or with weights that were cut short."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    weights = [file for file in files if file.suffix in WEIGHTS_SUFFIXES]
    if not weights:
        raise ConfigError(
            f"{folder}: holds no weights ({' '.join(WEIGHTS_SUFFIXES)}); nothing is downloaded: "
            f"hf download OWNER/MODEL --local-dir {folder}"
        )
    for file in weights:
        if file.suffix != ".gguf":
            read_safetensors_header(file)
