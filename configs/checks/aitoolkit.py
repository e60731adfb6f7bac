"""Find ai-toolkit, and refuse runs that it would ignore part of, lose work of, or fail on."""

import difflib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit_source import GROUPS, architectures, find_home, known_keys
from configs.checks.flux import WEIGHTS_SUFFIXES, weights_in
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.load import flatten, read_tree, to_tree
from configs.schema import Finetune, keys

_TAKEN = Path(__file__).with_name("aitoolkit-taken.yaml")
# Keys of ai-toolkit that may replace keys of ours, whose values have no effect then.
REPLACED = {
    "model.arch": "lora.targets",
    "network.network_kwargs": "lora.targets",
}
# Substrings of the names of layers, by `lora.targets`; None: no restriction.
LAYERS = {
    "attention": [".attn."],
    "attention+mlp": [".attn.", ".ff.", ".ff_context.", ".proj_mlp", ".proj_out"],
    "blocks": None,
    "all": None,
}


@cache
def taken() -> dict[str, str]:
    """Return the keys that ditbench sets itself, with the key of ours to set instead."""
    return dict(read_tree(_TAKEN))


def check_keys(config: Finetune) -> None:
    """Raise `ConfigError` for keys that ai-toolkit does not know, or that a key of ours sets.

    A key of ours may be replaced only while it has its default: two values would contradict.
    Whether ai-toolkit knows a key is read from its checkout, if `AI_TOOLKIT` names one here.
    """
    ours, spec = flatten(to_tree(config)), keys("finetune")
    is_here = config.aitoolkit and os.environ.get("AI_TOOLKIT")
    known = known_keys(find_home().folder) if is_here else None
    for name in _names(config.aitoolkit):
        replaced = REPLACED.get(name)
        if replaced and ours[replaced] != spec[replaced].default:
            raise ConfigError(
                f"aitoolkit.{name} replaces {replaced}, which is {ours[replaced]}: remove one"
            )
        if name in taken():
            raise ConfigError(f"aitoolkit.{name}: remove it and set {taken()[name]}")
        group, _, key = name.rpartition(".")
        if known and key not in known.get(group, frozenset()):
            raise ConfigError(_unknown(name, known))


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the keys; anything nested below a group's key is a value."""
    for name, value in tree.items():
        if name in GROUPS:
            if not isinstance(value, dict):
                raise ConfigError(f"aitoolkit.{name}: expected keys and values, found {value!r}")
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


def _unknown(name: str, known: Mapping[str, frozenset[str]]) -> str:
    every = [f"{of}.{key}".lstrip(".") for of, keys in known.items() for key in sorted(keys)]
    near = difflib.get_close_matches(name, [key for key in every if key not in taken()], n=1)
    hint = f"; did you mean aitoolkit.{near[0]}?" if near else ""
    return f"aitoolkit.{name}: ai-toolkit has no such key and would ignore it{hint}"


def arch_of(config: Finetune) -> str | None:
    """Return the kind of model under `aitoolkit`; None is a FLUX.1 in diffusers layout."""
    arch = config.aitoolkit.get("model", {}).get("arch")
    # A colon separates a tag, which ai-toolkit removes.
    return None if arch is None else str(arch).partition(":")[0]


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
    controls = [
        key for key in config.aitoolkit.get("datasets", {}) if key.startswith("control_path")
    ]
    if config.validation.held_out and controls:
        raise ConfigError(
            "validation.held_out: ai-toolkit would evaluate images without the ones in "
            f"aitoolkit.datasets.{controls[0]}; set it to 0, and read the training loss"
        )
    if arch_of(config):
        _check_arch(folder, config)


def remarks(config: Finetune) -> Iterator[str]:
    """Yield what may cost work: an average, and what may be loaded from the hub and is not here."""
    train = config.aitoolkit.get("train", {})
    if train.get("ema_config", {}).get("use_ema"):
        yield (
            "aitoolkit.train.ema_config: ai-toolkit saves the average in place of the weights, so "
            "that each resume loses the steps it lags behind"
        )
    arch = arch_of(config)
    if not (arch and os.environ.get("AI_TOOLKIT")):
        return
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()
    for name in sorted(architectures(find_home().folder).get(arch, ())):
        if not (cache / f"models--{name.replace('/', '--')}" / "snapshots").is_dir():
            yield (
                f"ai-toolkit's code for {arch} may load {name}, which is not in {cache}; if "
                f"compute nodes have no network: hf download {name}"
            )


def _check_arch(folder: Path, config: Finetune) -> None:
    """Refuse a name that ai-toolkit would take for Stable Diffusion 1, and samples of schnell."""
    name, known = arch_of(config), architectures(folder)
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = (
            f"did you mean {near[0]}?" if near else "`ditbench show finetune --arch ?` lists them"
        )
        raise ConfigError(
            f"aitoolkit.model.arch {name}: the ai-toolkit in {folder} has no such model and would "
            f"take it for Stable Diffusion 1; {hint}"
        )
    lacking = [key for key in ("steps", "guidance") if key not in config.sample.model_fields_set]
    if lacking:
        raise ConfigError(
            f"sample.{lacking[0]}: its default is for FLUX.1-schnell; set sample.steps and "
            f"sample.guidance for {name} (see the model's page)"
        )


def _check_weights(folder: Path) -> None:
    """Refuse a model without weights, or with weights that were cut short."""
    weights = weights_in(folder)
    if not weights:
        raise ConfigError(
            f"{folder}: holds no weights ({' '.join(WEIGHTS_SUFFIXES)}); nothing is downloaded: "
            f"hf download OWNER/MODEL --local-dir {folder}"
        )
    for file in weights:
        if file.suffix != ".gguf":
            read_safetensors_header(file)


def check_supported(config: Finetune) -> None:
    """Raise `ConfigError` for a value that ai-toolkit has no equal of."""
    rate = config.optimizer
    lacking = {
        "optimizer.decay: ai-toolkit decays over the whole run (1) or not": 0 < rate.decay < 1,
        "optimizer.decay_shape: ai-toolkit has linear and cosine": rate.decay_shape == "sqrt",
        "optimizer.warmup_steps: ai-toolkit warms up to a constant rate only": (
            rate.decay > 0 and rate.warmup_steps > 0
        ),
    }
    for cause, is_so in lacking.items():
        if is_so:
            raise ConfigError(f"{cause}; change it, or set engine=embedded")


def engine_of(config: Finetune, *, world: int, before: str | None = None) -> str:
    """Return the engine of a config or run on `world` ranks, `aitoolkit` or `embedded`.

    With `engine: auto` a run keeps the engine that trained it `before`. A new run uses
    ai-toolkit if `AI_TOOLKIT` names its folder and there is one rank, because ai-toolkit uses only
    one.
    """
    if config.engine != "auto":
        return config.engine
    if before:
        return before
    return "aitoolkit" if os.environ.get("AI_TOOLKIT") and world == 1 else "embedded"


def check_engine(config: Finetune, *, world: int, before: str | None = None) -> None:
    """Raise `ConfigError` if the engine would ignore keys of the other, or lose ranks."""
    if engine_of(config, world=world, before=before) == "aitoolkit":
        check_one_rank(world)
    elif config.aitoolkit or config.flux.assistant_lora:
        named = "aitoolkit" if config.aitoolkit else "flux.assistant_lora"
        cause = f"for {world} ranks" if world > 1 else "where AI_TOOLKIT is not set, as here"
        if config.engine != "auto" or before:
            cause = "in this run"
        raise ConfigError(
            f"{named}: only ai-toolkit has this, and engine={config.engine} takes the native "
            f"engine {cause}; set engine=aitoolkit in a new run, or remove it"
        )


def check_one_rank(world: int) -> None:
    """Raise `ConfigError` for more than one rank: ai-toolkit would lose the work of the others."""
    if world > 1:
        raise ConfigError(
            f"engine aitoolkit trains on one GPU, not on {world}: it never sums the gradients of "
            "ranks, so each would train a LoRA of its own and all but one would be lost; request "
            "one GPU, or set engine=embedded"
        )
