"""The keys that ai-toolkit knows: it silently ignores any other, so those are refused.

They are read from its source if `AI_TOOLKIT` names its folder. Otherwise they come from
configs/checks/aitoolkit-keys.yaml, for the version that `env/create.sh ai-toolkit` installs.
"""

import ast
import difflib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.load import read_tree

Known = Mapping[str, frozenset[str]]

_SHIPPED = Path(__file__).with_name("aitoolkit-keys.yaml")
_CLASSES = "toolkit/config_modules.py"
# The files in which a process reads the keys of its config; GROUPS: the class of each group.
_PROCESS = (
    "jobs/process/BaseProcess.py",
    "jobs/process/BaseTrainProcess.py",
    "jobs/process/BaseSDTrainProcess.py",
    "extensions_built_in/sd_trainer/SDTrainer.py",
    "extensions_built_in/sd_trainer/DiffusionTrainer.py",
)
GROUPS = {
    "adapter": "AdapterConfig",
    "datasets": "DatasetConfig",
    "embedding": "EmbeddingConfig",
    "first_sample": "SampleConfig",
    "guidance": "GuidanceConfig",
    "logging": "LoggingConfig",
    "model": "ModelConfig",
    "network": "NetworkConfig",
    "sample": "SampleConfig",
    "save": "SaveConfig",
    "train": "TrainConfig",
}


@cache
def taken() -> dict[str, str]:
    """Return the keys that ditbench sets itself, with the key of ours to set instead."""
    return dict(read_tree(_SHIPPED.with_name("aitoolkit-taken.yaml")))


def check_keys(passed: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for keys that ai-toolkit does not know, or that a key of ours sets."""
    known = known_keys()
    for name in _names(passed):
        if name in taken():
            raise ConfigError(f"aitoolkit.{name}: remove it and set {taken()[name]}")
        group, _, key = name.rpartition(".")
        if key not in known.get(group, frozenset()):
            raise ConfigError(_unknown(name, group, known))


def known_keys() -> Known:
    """Return the keys by group (top level: "") of the installed ai-toolkit, or of the list."""
    folder = os.environ.get("AI_TOOLKIT")
    if folder and (Path(folder) / _CLASSES).is_file():
        return read_keys(Path(folder))
    return {group: frozenset(names) for group, names in read_tree(_SHIPPED).items()}


def read_keys(folder: Path) -> Known:
    """Return the keys that the source of ai-toolkit in `folder` reads; none of it is executed."""
    classes = {
        node.name: node
        for node in ast.walk(_tree(folder / _CLASSES))
        if isinstance(node, ast.ClassDef)
    }
    found = {
        group: frozenset(_arguments(classes[name], "kwargs", ("get", "pop")))
        for group, name in GROUPS.items()
        if name in classes
    }
    process = {
        key
        for file in _PROCESS
        for key in (
            *_arguments(_tree(folder / file), "self", ("get_conf",)),
            *_arguments(_tree(folder / file), "self.config", ("get",)),
        )
    }
    return {"": frozenset(process), **found}


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); AI_TOOLKIT must name a complete checkout: "
            "env/create.sh ai-toolkit creates one"
        ) from None


def _arguments(tree: ast.AST, owner: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Yield each "name" of the calls `owner.method("name", ...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in methods or ast.unparse(node.func.value) != owner:
            continue
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)


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
