"""Queries for a cost: a config, and the GPUs to estimate it for; needs no torch."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.gpus import Gpu, gpu_names, named_gpu
from configs.load import merge, parse_overrides, read_tree, resolve
from configs.schema import Pretrain


@dataclass(frozen=True, kw_only=True)
class CostQuery:
    """A config, and the GPUs it may run on by the names that the user gave."""

    source: str
    config: Pretrain
    gpus: dict[str, Gpu]

    @property
    def world(self) -> int:
        """The number of ranks."""
        return int(self.config.resources.world)


def make_query(path: Path, overrides: list[str]) -> CostQuery:
    """Return the query for a config; if it names no GPU, for all known ones.

    Raises `ConfigError` for invalid input.
    """
    tree = merge(_read(path), parse_overrides(overrides))
    config = resolve(tree, source=str(path))
    if not isinstance(config, Pretrain):
        raise ConfigError(f"{path}: only pretraining is forecast, not kind {config.kind}")
    names = [config.resources.gpu] if config.resources.gpu else gpu_names()
    gpus = {name: named_gpu(name)[1] for name in names}
    return CostQuery(source=str(path), config=config, gpus=gpus)


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """Read a YAML once for all queries about it; `merge` copies what it changes."""
    return read_tree(path)
