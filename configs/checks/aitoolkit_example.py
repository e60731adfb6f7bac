"""A starting config for any kind of model: the settings of ai-toolkit's own user interface.

These are read from the source of its checkout, the table from which it fills its form.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit import taken
from configs.checks.aitoolkit_source import architectures, find_home, known_keys
from configs.errors import ConfigError
from configs.files import read_text
from configs.load import merge
from configs.schema import keys
from configs.yaml12 import dump_yaml, parse_yaml

_TABLE = "ui/src/app/jobs/new/options.tsx"
_ENTRY = re.compile(r"\n    name: '([\w.:-]+)',")
_SETTING = re.compile(r"'config\.process\[0\]\.([\w.\[\]]+)':\s*(?=\[)")
_SAMPLES = "ui/src/helpers/defaultSamples.ts"
_SAMPLE = re.compile(r"\b(width|height|guidance_scale|sample_steps): ([\d.]+)")
# What a model's settings name on the hub.
_HUB = re.compile(r"model\.\w*(name_or_path|lora_path)")


def example(name: str) -> str:
    """Return the YAML of a config for `name` (`arch` or `arch:tag`), as ai-toolkit sets it.

    Raise `ConfigError` if it has no such model.
    """
    folder = find_home().folder
    models = {
        each: own
        for each, own in settings(folder).items()
        if each.partition(":")[0] in architectures(folder)
    }
    if name not in models:
        raise ConfigError(
            f"--arch {name}: the ai-toolkit in {folder} sets nothing for it; it knows "
            f"{', '.join(sorted(models))}"
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
    header = [f"# A LoRA of {name} by ai-toolkit, with the settings of its own user interface."]
    header.append("# Licence and gating: docs/finetune.md, or the page of each download.")
    for key, value in models[name].items():
        ours = taken().get(key, f"aitoolkit.{key}")
        # Of the keys that ditbench sets, the keys of model and samples have the same values there.
        is_ours = ours in keys("finetune") and key.startswith(("model.", "sample."))
        if _HUB.fullmatch(key):
            owner, model, *files = str(value).split("/")
            header.append(
                f"# hf download {' '.join([f'{owner}/{model}', *files])} --local-dir models/{model}"
            )
            value = str(Path("models", model, *files))
        if is_ours or (key in known and key not in taken()):
            tree = merge(tree, {ours: value})
    return "\n".join(header) + "\n" + dump_yaml(tree)


@cache
def settings(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return what its user interface sets for each model, by `arch` or `arch:tag`.

    The keys are dotted, such as `sample.guidance_scale`.
    """
    table, samples = folder / _TABLE, folder / _SAMPLES
    text = re.sub(r"(?m)^\s*//.*$", "", read_text(table) if table.is_file() else "")
    shared = {
        f"sample.{name}": parse_yaml(value, source=str(samples))
        for name, value in reversed(_SAMPLE.findall(read_text(samples)))
    }
    _, *entries = _ENTRY.split(text)
    return {
        name: shared | dict(_settings_of(entry))
        for name, entry in zip(entries[::2], entries[1::2], strict=True)
    }


def _settings_of(entry: str) -> Iterator[tuple[str, Any]]:
    """Yield the first value of each pair `'config.process[0].KEY': [chosen, otherwise]`."""
    for match in _SETTING.finditer(entry):
        pair = entry[match.end() : _closing(entry, match.end())]
        with suppress(ConfigError):
            value = parse_yaml(pair.replace("undefined", "null"), source="")[0]
            if value not in (None, "", {}):
                yield match[1].replace("[x]", ""), value


def _closing(text: str, begin: int) -> int:
    """Return the end of the bracket that opens at `begin`."""
    depth = 0
    for place in range(begin, len(text)):
        depth += (text[place] in "[{") - (text[place] in "]}")
        if depth == 0:
            return place + 1
    return len(text)
