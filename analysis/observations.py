"""Facts of a run that a comparison needs beside its records: seed, nodes, times and repeats."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar

from analysis.measure.differences import causes, differences, recipe
from analysis.read.machine import placement
from analysis.read.run_log import RunLog, kept_with_log
from runs.study_folder import StudyFolder, study_of

Item = TypeVar("Item")


def seed_of(log: RunLog) -> Any:
    """Return the seed of a run, None if it is not known."""
    return (log.config or {}).get("seed")


def nodes_of(log: RunLog) -> frozenset[str]:
    """Return the nodes of a run's last attempt, none if they are not known."""
    return frozenset(str(place["node"]) for place in placement(log.facts) if place.get("node"))


@kept_with_log
def pass_of(log: RunLog) -> Hashable:
    """Return the pass of its study in which a run ran, with its nodes; None if either is unknown.

    Each repeat and each seed of a study is a pass over all cells in random order.
    """
    study, nodes = study_of(log.path), nodes_of(log)
    if study is None or not nodes:
        return None
    name = _passes(study.path, study.cells_file.stat().st_mtime_ns).get(log.path.name)
    return (study.path, *name, nodes) if name else None


@lru_cache(maxsize=16)
def _passes(study: Path, _: int) -> Mapping[str, tuple[int, str]]:
    """Return the repeat and the seed of each cell of a study; again after a change of its table."""
    rows = StudyFolder(study).rows()
    return {row.cell: (row.repeat, str(row.levels.get("seed"))) for row in rows}


def overlap(logs: Sequence[RunLog]) -> str | None:
    """Return which two runs shared a node at the same time, by their manifests; None if none did.

    Such runs took time from each other, so that their rates are not their own.
    """
    for a, b in combinations(logs, 2):
        shared = nodes_of(a) & nodes_of(b)
        if a is not b and shared and _at_once(a, b):
            return f"{a.name} and {b.name} ran at once on {min(shared)}"
    return None


def _at_once(a: RunLog, b: RunLog) -> bool:
    spans = [
        [(began, ended) for began, ended in log.allocated.values() if ended is not None]
        for log in (a, b)
    ]
    return any(
        max(x[0], y[0]) < min(x[1] or x[0], y[1] or y[0]) for x in spans[0] for y in spans[1]
    )


def is_repeat(a: RunLog, b: RunLog) -> bool:
    """Whether two runs differ only in seed and in keys that affect nothing."""
    return recipe(a) is not None and recipe(a) == recipe(b)


def group_alike(items: Sequence[Item], key: Callable[[Item], Hashable | None]) -> list[list[Item]]:
    """Group items of one key, in the order of first items; an item without a key stands alone."""
    groups: dict[Hashable, list[Item]] = {}
    for number, item in enumerate(items):
        found = key(item)
        groups.setdefault((number,) if found is None else found, []).append(item)
    return list(groups.values())


def attributed(a: RunLog, b: RunLog, *, of: Literal["clock", "loss"]) -> str:
    """Return a phrase that attributes a ratio of the speed or the loss of two runs."""
    if a.config is None or b.config is None:
        return "configs unknown: the ratio cannot be attributed"
    found = [item for item in causes(differences(a, b), of=of) if item.name != "seed"]
    is_apart = bool(nodes_of(a) and nodes_of(b)) and not nodes_of(a) & nodes_of(b)
    if of == "clock" and is_apart:
        names = ", ".join(["nodes", *(item.name for item in found)])
        return f"nodes differ, too ({names}): not the effect of any one of them"
    if not found:
        return f"nothing known to affect the {of} differs"
    if len(found) == 1:
        return f"the effect of {found[0]}"
    names = ", ".join(item.name for item in found)
    return f"{len(found)} things differ ({names}): not the effect of any one of them"
