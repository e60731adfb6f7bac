"""What a comparison asks of runs beside their records: seed, nodes, times, and repeats."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, TypeVar

from analysis.measure.differences import differences
from analysis.read.machine import placement
from analysis.read.run_log import RunLog

Item = TypeVar("Item")


def seed_of(log: RunLog) -> Any:
    """Return the seed of a run, None if it is not known."""
    return (log.config or {}).get("seed")


def nodes_of(log: RunLog) -> frozenset[str]:
    """Return the nodes of a run's last attempt, none if they are not known."""
    return frozenset(str(place["node"]) for place in placement(log.facts) if place.get("node"))


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
    if a.config is None or b.config is None:
        return False
    return all(item.name == "seed" or not item.affects for item in differences(a, b))


def group_alike(items: Sequence[Item], are_alike: Callable[[Item, Item], bool]) -> list[list[Item]]:
    """Group items with the first that each is alike, in the order of first items."""
    groups: list[list[Item]] = []
    for item in items:
        group = next((group for group in groups if are_alike(group[0], item)), None)
        if group is None:
            groups.append(group := [])
        group.append(item)
    return groups
