"""Step costs that were counted before, by a hash of all that they depend on; needs no torch."""

import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
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


def kept_cost(facts: dict[str, Any], count: Callable[[], RunCost]) -> RunCost:
    """Return the cost of the steps that `facts` describe; `count` it if it is not kept yet.

    A changed line of the trainer, or another version of torch, makes it count again.
    """
    text = json.dumps({"facts": facts, "code": _code(), "libraries": _versions()}, sort_keys=True)
    return _cost(hashlib.sha256(text.encode()).hexdigest(), count)


class NotKept(Exception):
    """The cost with this name is not kept, and may not be counted now."""


@contextlib.contextmanager
def only_kept() -> Iterator[None]:
    """Raise `NotKept` in the `with` block instead of counting."""
    global _may_count
    _may_count = False
    try:
        yield
    finally:
        _may_count = True


_may_count = True
_in_memory: dict[str, RunCost] = {}


def say(words: str) -> None:
    """Say on stderr how far the counting is; `ditbench plan` passes these lines on."""
    print(f"{COUNTING} {words}", file=sys.stderr, flush=True)


def _cost(name: str, count: Callable[[], RunCost]) -> RunCost:
    if name in _in_memory:
        return _in_memory[name]
    file = folder() / f"{name}.json"
    try:
        cost = RunCost.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        if not _may_count:
            raise NotKept(name) from None
        if parent_process() is None:  # several processes would say it at once
            say("a network; the first answer takes seconds to minutes")
        cost = count()
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(cost.to_json()))
    _in_memory[name] = cost
    return cost


def folder() -> Path:
    """Return the folder of kept costs, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ditbench" / "cost"


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
