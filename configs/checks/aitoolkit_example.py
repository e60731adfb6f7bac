"""A starting config for any kind of model that the checkout of ai-toolkit at hand trains."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit import taken
from configs.checks.aitoolkit_source import architectures, defaults, find_home, known_keys
from configs.errors import ConfigError
from configs.load import merge
from configs.schema import keys
from configs.yaml12 import dump_yaml

# What a model's defaults name on the hub.
_HUB = re.compile(r"model\.\w*(name_or_path|lora_path)")


def example(name: str) -> str:
    """Return the YAML of a config for `name` (`arch` or `arch:tag`), as ai-toolkit sets it.

    Its sizes, steps, guidance and quantisation are those that ai-toolkit's own user interface
    sets when this model is chosen. Raise `ConfigError` if it has no such model.
    """
    folder = find_home().folder
    own = {
        each: settings
        for each, settings in defaults(folder).items()
        if each.partition(":")[0] in architectures(folder)
    }
    if name not in own:
        raise ConfigError(
            f"--arch {name}: the ai-toolkit in {folder} sets nothing for it; it knows "
            f"{', '.join(sorted(own))}"
        )
    known = {f"{group}.{key}" for group, names in known_keys(folder).items() for key in names}
    tree: dict[str, Any] = {
        "kind": "finetune",
        "engine": "aitoolkit",
        "flux": {"folder": "models/MODEL"},
        "data": {"folder": "data/subject", "trigger": "sks subject"},
        "train": {"steps": 2000},
        "sample": {"prompts": ["a photo of [trigger]", "[trigger] on a beach"]},
        "aitoolkit": {"model": {"arch": name}},
    }
    for key, value in own[name].items():
        ours = taken().get(key, f"aitoolkit.{key}")
        # Of the keys that ditbench sets, those of model and samples have the same values there.
        is_ours = ours in keys("finetune") and key.startswith(("model.", "sample."))
        if is_ours or (key in known and key not in taken()):
            tree = merge(tree, {ours: _local(value) if _HUB.fullmatch(key) else value})
    return _header(name, own[name]) + dump_yaml(tree)


def _header(name: str, own: Mapping[str, Any]) -> str:
    """Return comments: the commands that download what the config names."""
    lines = [f"# A LoRA of {name} by ai-toolkit, with the settings of its own user interface."]
    lines.append("# Licence and gating: docs/finetune.md, or the page of each download.")
    if gate := own.get("gate"):
        lines.append(f"# Gated: accept the terms at {gate}, then hf auth login.")
    for hub in (str(value) for key, value in own.items() if _HUB.fullmatch(key)):
        owner, model, *files = hub.split("/")
        what = " ".join([f"{owner}/{model}", *files])
        lines.append(f"# hf download {what} --local-dir models/{model}")
    return "\n".join(lines) + "\n"


def _local(hub: str) -> str:
    """Return the path that the commands of the header give a hub id."""
    return str(Path("models", *hub.split("/")[1:]))
