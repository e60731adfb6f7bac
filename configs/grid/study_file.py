"""Read a study from its file, or build one from a config and several values for some keys.

`key=v1,v2` makes an axis, `key=value` sets a key in every cell. Quotes keep a comma in a text, as
in `data.path='"/data/a, b"'`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.grid.cells import Cell, make_cells
from configs.load import (
    Tree,
    merge,
    parse_overrides,
    read_tree,
    refuse_command,
    resolve_study,
    to_tree,
)
from configs.schema import Study
from configs.yaml12 import parse_yaml

# Keys of the study that the command line may set; all other keys belong to its cells.
_OWN = frozenset(["question", "repeats", "throttle", "interleave", "report"])


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A study, with an absolute `base`, and its cells."""

    study: Study
    cells: list[Cell]
    source: Path

    @property
    def name(self) -> str:
        """The first part of the name of the study's folder: `name=` or the name of the file."""
        return str(self.study.set.get("name") or self.source.stem)


def is_study(path: Path, overrides: list[str]) -> bool:
    """Return whether a file is a study, or a config that the overrides make one."""
    if os.path.isfile(path) and read_tree(path).get("kind") == "study":
        return True
    return any(
        len(values) > 1 or name in ("repeats", "throttle", "interleave")
        for name, values in parse_values(overrides).items()
    )


def load_grid(path: Path, overrides: list[str]) -> Grid:
    """Return the study of a file, or of a config, with its cells; errors name file, cell, key."""
    values = parse_values(overrides)
    tree = read_tree(path)
    if tree.get("kind") == "study":
        study = _with_values(resolve_study(tree, source=str(path)), values, source=str(path))
        base = path.parent / str(study.base)
    else:
        study = _with_values(Study(base=str(path)), values, source=str(path))
        base = path
    base_tree = read_tree(base)
    if base_tree.get("kind") == "study":
        raise ConfigError(f"{path}: base {base} is a study itself; name a config")
    refuse_command(base_tree, source=base)
    study = study.model_copy(update={"base": str(base.resolve())})
    return Grid(study=study, cells=make_cells(study, base_tree, source=str(path)), source=path)


def parse_values(overrides: list[str]) -> dict[str, list[Any]]:
    """Parse `["a=1,2", "b=x"]` to `{"a": [1, 2], "b": ["x"]}`; a question is never split."""
    values = {}
    for override in overrides:
        name, _, text = override.partition("=")
        if "," in text and name != "question":
            values[name] = list(parse_yaml(f"[{text}]", source=f"{name}= on the command line"))
        else:
            values[name] = list(parse_overrides([override]).values())
    return values


def _with_values(study: Study, values: dict[str, list[Any]], *, source: str) -> Study:
    tree: Tree = to_tree(study)
    for name, given in values.items():
        if name in _OWN:
            if len(given) > 1:
                raise ConfigError(f"{name}: expected one value, found {', '.join(map(str, given))}")
            tree[name] = given[0]
        elif name in ("kind", "base", "set", "axes"):
            raise ConfigError(f"{name}: can be changed only in the file of the study, {source}")
        elif name in tree["axes"]:
            tree["axes"] = tree["axes"] | {name: _narrowed(name, tree["axes"][name], given)}
        elif len(given) > 1:
            tree["axes"] = tree["axes"] | {name: given}
        else:
            tree["set"] = merge(tree["set"], {name: given[0]})
    return resolve_study(tree, source=source)


def _narrowed(name: str, levels: Any, given: list[Any]) -> Any:
    if isinstance(levels, list):
        return given
    unknown = [label for label in given if label not in levels]
    if unknown:
        raise ConfigError(
            f"{name}={unknown[0]}: no such label of the axis; it has {', '.join(levels)}"
        )
    return {label: levels[label] for label in levels if label in given}
