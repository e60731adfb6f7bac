"""The keys that ai-toolkit knows: it silently ignores any other, so those are refused.

aitoolkit-keys.yaml lists those of the version that `env/create.sh ai-toolkit` installs.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.load import flatten, read_tree, to_tree
from configs.schema import Finetune, keys

Known = Mapping[str, frozenset[str]]

_SHIPPED = Path(__file__).with_name("aitoolkit-keys.yaml")
# The groups of its config; other keys stand at the top level.
GROUPS = frozenset([
    "adapter", "datasets", "embedding", "first_sample", "guidance", "logging",
    "model", "network", "sample", "save", "train",
])  # fmt: skip
_ADAMW = ("optimizer.beta1", "optimizer.beta2", "optimizer.weight_decay")
# Keys of ai-toolkit that may replace keys of ours, whose values have no effect then.
REPLACED = {
    "model.arch": ("flux.variant", "lora.targets"),
    "model.qtype": ("flux.quantise",),
    "network.network_kwargs": ("lora.targets",),
    "network.type": ("lora.kind",),
    "train.optimizer": ("optimizer.kind", *_ADAMW),
    "train.optimizer_params": _ADAMW,
    "train.timestep_type": ("train.timesteps",),
}


@cache
def taken() -> dict[str, str]:
    """Return the keys that ditbench sets itself, with the key of ours to set instead."""
    return dict(read_tree(_SHIPPED.with_name("aitoolkit-taken.yaml")))


def check_keys(config: Finetune) -> None:
    """Raise `ConfigError` for keys that ai-toolkit does not know, or that a key of ours sets.

    A key of ours may be replaced only while it has its default: two values would contradict.
    """
    known, ours, spec = known_keys(), flatten(to_tree(config)), keys("finetune")
    for name in _names(config.aitoolkit):
        for replaced in REPLACED.get(name, ()):
            if ours[replaced] != spec[replaced].default:
                raise ConfigError(
                    f"aitoolkit.{name} replaces {replaced}, which is {ours[replaced]}: remove one"
                )
        if name in taken():
            raise ConfigError(f"aitoolkit.{name}: remove it and set {taken()[name]}")
        group, _, key = name.rpartition(".")
        if key not in known.get(group, frozenset()):
            raise ConfigError(_unknown(name, group, known))


def replaced_keys(config: Finetune) -> dict[str, str]:
    """Return the keys of ours that keys under `aitoolkit` replace, with the key that does."""
    return {
        ours: f"aitoolkit.{name} holds instead"
        for name in _names(config.aitoolkit)
        for ours in REPLACED.get(name, ())
    }


def known_keys() -> Known:
    """Return the keys by group (top level: "")."""
    return {group: frozenset(names) for group, names in read_tree(_SHIPPED).items()}


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the keys; anything nested below a group's key is a value."""
    for name, value in tree.items():
        if name in GROUPS:
            if not isinstance(value, dict):
                raise ConfigError(f"aitoolkit.{name}: expected keys and values, found {value!r}")
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


def _unknown(name: str, group: str, known: Known) -> str:
    every = [f"{of}.{key}".lstrip(".") for of, keys in known.items() for key in sorted(keys)]
    offered = [key for key in every if key not in taken()]
    here = [key for key in offered if key.rpartition(".")[0] == group]
    near = difflib.get_close_matches(name, here, n=1) or difflib.get_close_matches(
        name, offered, n=1
    )
    hint = f"; did you mean aitoolkit.{near[0]}?" if near else ""
    return f"aitoolkit.{name}: ai-toolkit has no such key and would ignore it{hint}"
