"""Find ai-toolkit, and refuse runs that it would ignore part of, lose work of, or fail on."""

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit_source import GROUPS, known_keys
from configs.checks.dataset import image_set
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.load import flatten, read_tree, to_tree
from configs.schema import Finetune, keys

_TAKEN = Path(__file__).with_name("aitoolkit-taken.yaml")
# Keys of ai-toolkit that may replace keys of ours, whose values have no effect then.
REPLACED = {
    theirs: tuple(info.name for info in keys("finetune").values() if theirs in info.aitoolkit)
    for info in keys("finetune").values()
    for theirs in info.aitoolkit
}
ASSISTANT_KEY = "transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight"
# Substrings of the names of layers, by `lora.targets`; None: no restriction.
LAYERS = {
    "attention": [".attn."],
    "attention+mlp": [".attn.", ".ff.", ".ff_context.", ".proj_mlp", ".proj_out"],
    "blocks": None,
    "all": None,
}
# The formats that ai-toolkit itself reads.
IMAGES = (".png", ".jpg", ".jpeg", ".webp")
# The least side of a sample.
_LEAST_SAMPLE_PX = 64


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
        for replaced in REPLACED.get(name, ()):
            if ours[replaced] != spec[replaced].default:
                raise ConfigError(
                    f"aitoolkit.{name} replaces {replaced}, which is {ours[replaced]}: remove one"
                )
        if name in taken():
            raise ConfigError(f"aitoolkit.{name}: remove it and set {taken()[name]}")
        group, _, key = name.rpartition(".")
        if known and key not in known.get(group, frozenset()):
            raise ConfigError(_unknown(name, group, known))


def replaced_keys(config: Finetune) -> dict[str, str]:
    """Return the keys of ours that keys under `aitoolkit` replace, with the key that does."""
    return {
        ours: f"aitoolkit.{name} holds instead"
        for name in _names(config.aitoolkit)
        for ours in REPLACED.get(name, ())
    }


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the keys; anything nested below a group's key is a value."""
    for name, value in tree.items():
        if name in GROUPS:
            if not isinstance(value, dict):
                raise ConfigError(f"aitoolkit.{name}: expected keys and values, found {value!r}")
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


def _unknown(name: str, group: str, known: Mapping[str, frozenset[str]]) -> str:
    every = [f"{of}.{key}".lstrip(".") for of, keys in known.items() for key in sorted(keys)]
    offered = [key for key in every if key not in taken()]
    here = [key for key in offered if key.rpartition(".")[0] == group]
    near = difflib.get_close_matches(name, here, n=1) or difflib.get_close_matches(
        name, offered, n=1
    )
    hint = f"; did you mean aitoolkit.{near[0]}?" if near else ""
    return f"aitoolkit.{name}: ai-toolkit has no such key and would ignore it{hint}"


@dataclass(frozen=True, kw_only=True)
class Home:
    """A checkout of ai-toolkit and the Python of its own virtualenv."""

    folder: Path
    python: Path


def find_home() -> Home:
    """Return the checkout that `AI_TOOLKIT` names; raise `ConfigError` if it is not complete."""
    named = os.environ.get("AI_TOOLKIT")
    if not named:
        raise ConfigError(
            "engine aitoolkit needs AI_TOOLKIT, the folder of its checkout: set it in the site "
            "file (env/sites/), create one with env/create.sh ai-toolkit, or set engine=embedded"
        )
    folder = Path(named).expanduser().absolute()
    if not (folder / "run.py").is_file() or not (folder / "toolkit").is_dir():
        raise ConfigError(
            f"AI_TOOLKIT={named}: not a checkout of ai-toolkit (it has no run.py and toolkit/); "
            "create one with env/create.sh ai-toolkit"
        )
    for name in ("venv", ".venv"):
        python = folder / name / "bin" / "python"
        if os.access(python, os.X_OK):
            return Home(folder=folder, python=python)
    raise ConfigError(
        f"{folder}: no virtualenv of its own in venv/ or .venv/; env/create.sh ai-toolkit "
        "creates it"
    )


def arch_of(config: Finetune) -> str | None:
    """Return the kind of model under `aitoolkit`; None is a FLUX.1 in diffusers layout."""
    arch = config.aitoolkit.get("model", {}).get("arch")
    # A colon separates a tag, which ai-toolkit removes.
    return None if arch is None else str(arch).partition(":")[0]


def check_supported(config: Finetune) -> None:
    """Raise `ConfigError` for images, an assistant LoRA or keys that ai-toolkit cannot use."""
    has_images = Path(str(config.data.folder)).is_dir()
    found = vars(image_set(config)).values() if has_images else ()
    for each in (each for images in found for each in images):
        if each.image.suffix.lower() not in IMAGES:
            raise ConfigError(
                f"{each.image}: ai-toolkit reads only {' '.join(IMAGES)} and would skip it; "
                "save it as PNG, or set engine=embedded"
            )
    assistant = config.flux.assistant_lora
    if assistant and Path(assistant).is_file() and not arch_of(config):
        check_assistant(Path(assistant), ASSISTANT_KEY)
    if lacks := _lacks(config):
        raise ConfigError(f"{lacks}; change it, or set engine=embedded")
    if config.lora.alpha not in (None, config.lora.rank):
        raise ConfigError(
            f"lora.alpha {config.lora.alpha:g}: ai-toolkit always uses the rank as alpha of a "
            "transformer; remove it, or set engine=embedded"
        )


def check_assistant(file: Path, key: str) -> None:
    """Raise `ConfigError` if an assistant LoRA lacks the key from which its rank is read."""
    if key not in read_safetensors_header(file).tensors:
        raise ConfigError(
            f"flux.assistant_lora {file}: has no {key}, from which ai-toolkit reads its rank; "
            "name the assistant of this kind of model"
        )


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


def _lacks(config: Finetune) -> str | None:
    """Return a key whose value ai-toolkit has no equal of, and why."""
    lora, rate = config.lora, config.optimizer
    is_both = rate.decay > 0 and rate.warmup_steps > 0
    lacking = {
        "lora.targets: ai-toolkit has no regular expressions": lora.targets not in LAYERS,
        "optimizer.restarts: ai-toolkit's period is always the whole run": rate.restarts > 0,
        "optimizer.decay: ai-toolkit decays over the whole run (1) or not": 0 < rate.decay < 1,
        "optimizer.decay_shape: ai-toolkit has linear and cosine": rate.decay_shape == "sqrt",
        "optimizer.warmup_steps: ai-toolkit warms up to a constant rate only": is_both,
    }
    return next((cause for cause, is_so in lacking.items() if is_so), None)


def unlike_native(config: Finetune) -> dict[str, str]:
    """Return what ai-toolkit does otherwise than the native engine with the same config, by key."""
    sample, batch = config.sample, config.train.micro_batch or config.train.global_batch
    found = {
        "seed": "order, noise and times are other draws",
        "data.folder": "each latent is a draw from the VAE's posterior, not its mean"
        + ("; a batch is filled up with copies of its images" if batch > 1 else ""),
    }
    found["data.resolutions"] = "images that are not square are cropped to sizes of its own"
    if min(sample.width, sample.height) < _LEAST_SAMPLE_PX:
        size = [max(_LEAST_SAMPLE_PX, side) for side in (sample.width, sample.height)]
        found["sample.width"] = f"samples are {size[0]} x {size[1]} px, its least"
    found["validation"] = "of images held out only, their mean loss at one noise each"
    return found | replaced_keys(config)


def check_one_rank(world: int) -> None:
    """Raise `ConfigError` for more than one rank: ai-toolkit would lose the work of the others."""
    if world > 1:
        raise ConfigError(
            f"engine aitoolkit trains on one GPU, not on {world}: it never sums the gradients of "
            "ranks, so each would train a LoRA of its own and all but one would be lost; request "
            "one GPU, or set engine=embedded"
        )
