"""Queries for a cost: a config, the GPUs to estimate it for, and their number."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.gpus import Gpu, gpu_names, named_gpu
from configs.load import expect, merge, parse_overrides, read_tree, resolve
from configs.schema import Finetune

# The keys of a line of `--cells`, and the types of their values.
_KEYS: dict[str, tuple[type, ...]] = {
    "config": (str,),
    "overrides": (list,),
    "gpu": (str, list),
    "nodes": (int,),
    "gpus_per_node": (int,),
}


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """A config on `nodes` x `gpus_per_node` of each of `gpus`, with the names the user gave."""

    source: str
    config: Any  # Pretrain or Finetune
    gpus: dict[str, Gpu]
    nodes: int
    gpus_per_node: int

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.nodes * self.gpus_per_node


def make_query(
    path: Path,
    overrides: list[str],
    *,
    kind: type[Any],
    gpus: list[str] | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
) -> CostQuery:
    """Return the query for a config; the defaults come from its `resources`.

    If neither names a GPU, the query has all known GPUs. Raises `ConfigError` for invalid input.
    """
    tree = merge(_read(path), parse_overrides(overrides))
    config = expect(resolve(tree, source=str(path)), kind, source=path)
    if isinstance(config, Finetune) and config.engine == "aitoolkit":
        raise ConfigError(f"{path}: only the native engine (engine=embedded) has a cost")
    resources = config.resources
    names = gpus or ([resources.gpu] if resources.gpu else gpu_names())
    return CostQuery(
        source=str(path),
        config=config,
        gpus={name: named_gpu(name)[1] for name in names},
        nodes=nodes or resources.nodes,
        # The cost of a config without GPUs is for one.
        gpus_per_node=gpus_per_node or resources.gpus_per_node or 1,
    )


def read_queries(path: Path, kind: type[Any]) -> Iterator[CostQuery | ConfigError]:
    """Yield the query of each line of a JSON lines file, or the error of an invalid line.

    Each line is `{"config": path, "overrides": ["key=value", ...], "gpu": "a100" or [...],
    "nodes": 1, "gpus_per_node": 8}`; all but `config` are optional.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--cells {path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _parse(line, kind)
        except ConfigError as error:
            yield ConfigError(f"{path}:{number}: {error}")


def _parse(line: str, kind: type[Any]) -> CostQuery:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("config"), str):
        raise ConfigError('expected {"config": path, ...}')
    for name, value in fields.items():
        if name not in _KEYS or not isinstance(value, _KEYS[name]):
            raise ConfigError(f"{name}: {value!r} is not valid in a cell ({', '.join(_KEYS)})")
    gpu = fields.get("gpu")
    names = gpu.split(",") if isinstance(gpu, str) else gpu and [str(name) for name in gpu]
    return make_query(
        Path(fields["config"]),
        [str(override) for override in fields.get("overrides", [])],
        kind=kind,
        gpus=names,
        nodes=fields.get("nodes"),
        gpus_per_node=fields.get("gpus_per_node"),
    )


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """Read a YAML once for all queries about it; `merge` copies what it changes."""
    return read_tree(path)
