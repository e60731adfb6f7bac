"""What a forecast is asked for: a config, the GPUs to judge it on, and how many of them."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.gpus import Gpu, gpu_names, named_gpu
from configs.load import expect, merge, parse_overrides, read_tree, resolve
from configs.schema import Pretrain


@dataclass(frozen=True, kw_only=True)
class ForecastQuery:
    """A config on `nodes` x `gpus_per_node` of each of `gpus`, by the names that were asked."""

    source: str
    config: Pretrain
    gpus: dict[str, Gpu]
    nodes: int
    gpus_per_node: int

    @property
    def world(self) -> int:
        """All ranks."""
        return self.nodes * self.gpus_per_node


def make_query(
    path: Path,
    overrides: list[str],
    *,
    gpus: list[str] | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
) -> ForecastQuery:
    """The cell of a config; what is not given is what its `resources` ask for.

    Where neither names a GPU, all that are known are judged. `ConfigError` for what is wrong.
    """
    tree = merge(_read(path), parse_overrides(overrides))
    config = expect(resolve(tree, source=str(path)), Pretrain, source=path)
    asked = config.resources
    names = gpus or ([asked.gpu] if asked.gpu else gpu_names())
    return ForecastQuery(
        source=str(path),
        config=config,
        gpus={name: named_gpu(name)[1] for name in names},
        nodes=nodes or asked.nodes,
        # A config without GPUs is forecast for one.
        gpus_per_node=gpus_per_node or asked.gpus_per_node or 1,
    )


def read_queries(path: Path) -> Iterator[ForecastQuery | ConfigError]:
    """The cells of a file of JSON lines, in order; of one that is wrong, the error.

    Each line is `{"config": path, "overrides": ["key=value", ...], "gpu": "a100" or [...],
    "nodes": 1, "gpus_per_node": 8}`; all but `config` may be left out.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--cells {path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _cell(line)
        except ConfigError as error:
            yield ConfigError(f"{path}:{number}: {error}")


def _cell(line: str) -> ForecastQuery:
    try:
        asked = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None
    known: dict[str, tuple[type, ...]] = {
        "config": (str,),
        "overrides": (list,),
        "gpu": (str, list),
        "nodes": (int,),
        "gpus_per_node": (int,),
    }
    if not isinstance(asked, dict) or not isinstance(asked.get("config"), str):
        raise ConfigError('expected {"config": path, ...}')
    for name, value in asked.items():
        if name not in known or not isinstance(value, known[name]):
            raise ConfigError(f"{name}: {value!r} is not what a cell may have ({', '.join(known)})")
    return make_query(
        Path(asked["config"]),
        [str(override) for override in asked.get("overrides", [])],
        gpus=_names(asked.get("gpu")),
        nodes=asked.get("nodes"),
        gpus_per_node=asked.get("gpus_per_node"),
    )


def _names(gpu: str | list[Any] | None) -> list[str] | None:
    return gpu.split(",") if isinstance(gpu, str) else gpu and [str(name) for name in gpu]


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """The tree of a YAML, parsed once for all its cells (`merge` copies what it changes)."""
    return read_tree(path)
