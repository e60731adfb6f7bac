"""Step costs that were counted before, by a hash of all that they depend on; needs no torch."""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from configs.disk import replace_file
from runs.folder import ROOT
from train.cost.line import RunCost

# The first words of the lines about progress.
COUNTING = "counting memory:"
_SOURCES = ("train",)
_LIBRARIES = ("torch", "diffusers")

_in_memory: dict[Path, RunCost] = {}


def kept_cost(facts: dict[str, Any], count: Callable[[], RunCost]) -> RunCost:
    """Return the cost of the steps that `facts` describe; `count` it if it is not kept yet."""
    file = cost_file(facts)
    if file not in _in_memory:
        _in_memory[file] = _read(file) or _keep(file, count)
    return _in_memory[file]


def cost_file(facts: dict[str, Any]) -> Path:
    """Return the file of a cost, which exists if it is kept.

    A changed line of the trainer, or another version of torch, makes it another file.
    """
    text = json.dumps({"facts": facts, "code": _code(), "libraries": _versions()}, sort_keys=True)
    return cost_folder() / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def cost_folder() -> Path:
    """Return the folder of kept costs, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ditbench" / "cost"


def say(words: str) -> None:
    """Say on stderr how far the counting is; `ditbench plan` passes these lines on."""
    print(f"{COUNTING} {words}", file=sys.stderr, flush=True)


def _read(file: Path) -> RunCost | None:
    try:
        return RunCost.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(file: Path, count: Callable[[], RunCost]) -> RunCost:
    if parent_process() is None:  # several processes would say it at once
        say("a network; the first answer takes seconds to minutes")
    cost = count()
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(cost.to_json()))
    return cost


@functools.cache
def _code() -> str:
    digest = hashlib.sha256()
    for source in _SOURCES:
        for file in sorted((ROOT / source).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


@functools.cache
def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = None
    return found
