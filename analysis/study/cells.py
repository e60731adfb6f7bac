"""The cells of a study: which factors vary over its runs, and what a run of one measured."""

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.measure.differences import DERIVED_FACTS, follows, recipe
from analysis.observations import nodes_of
from analysis.read.machine import THREADS
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate
from analysis.stats.mean import mean_of
from runs.records import is_number, starts

Levels = tuple[str, ...]


def started_runs(logs: Sequence[RunLog]) -> list[RunLog]:
    """Return the runs that are neither queued nor skipped, nor were stopped while they waited."""
    return [log for log in logs if not _has_only_waited(log)]


def _has_only_waited(log: RunLog) -> bool:
    state = log.state
    return state.is_queued or state.is_skipped or (state.is_stopped and not starts(log.events))


def factors_of(logs: Sequence[RunLog]) -> tuple[tuple[str, ...], list[Levels]]:
    """Return the factors that vary over runs of different settings, and the levels of each run.

    Keys that vary in step are one factor: their effects cannot be told apart.
    """
    known = [dict(recipe(log) or ()) for log in logs]
    names = sorted({name for pairs in known for name in pairs} - {THREADS})
    columns = {name: tuple(pairs.get(name, "null") for pairs in known) for name in names}
    unlike = {name: column for name, column in columns.items() if len(set(column)) > 1}
    derived = tuple(name for name in DERIVED_FACTS if name != "engine")
    keys = [name for name in unlike if not name.startswith(derived)]
    varying = {
        name: column
        for name, column in unlike.items()
        if name == "engine" or not follows(name, keys)
    }
    # The name with the shortest values comes first in its group, and labels the levels.
    groups = [
        sorted(members, key=lambda name: len("".join(varying[name])))
        for members in _in_step(varying)
    ]
    levels = [tuple(varying[first][row] for first, *_ in groups) for row in range(len(logs))]
    return tuple(" + ".join(members) for members in groups), levels


def _in_step(varying: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Group names whose values map one to one over all runs: their effects cannot be separated."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, column in varying.items():
        order = {value: number for number, value in enumerate(dict.fromkeys(column))}
        groups.setdefault(tuple(order[value] for value in column), []).append(name)
    return list(groups.values())


def node_of_one_side(pairs: Sequence[tuple[RunLog, RunLog]]) -> str | None:
    """Return the nodes that runs of one side of the pairs share and their partners lack, if any.

    Runs on one node share its speed, so that they are no independent evidence. A pair whose runs
    shared their nodes is not affected.
    """
    where = [(nodes_of(a), nodes_of(b)) for a, b in pairs]
    apart = [(a, b) for a, b in where if a and b and a != b]
    for nodes in zip(*apart, strict=True):
        for own in nodes:
            if nodes.count(own) > 1:
                return ", ".join(sorted(own))
    return None


def peak_memory_gb(log: RunLog) -> float | None:
    """Return the largest memory that a rank's allocator held, in GB."""
    memory = log.column("gpu_gb")
    return float(np.nanmax(memory)) if (memory > 0).any() else None


def seconds_per_image(log: RunLog) -> Estimate | None:
    """Return the mean seconds of an image, without the first image of each start.

    An inference run records every image, a fine-tuning run each set of samples.
    """
    seconds = [r["image_s"] for r in log.evaluations if is_number(r.get("image_s"))]
    for record in log.evaluations:
        images, drawn_s, first_s = (
            record.get(name) for name in ("drawn_images", "drawn_s", "first_image_s")
        )
        if is_number(images) and is_number(drawn_s) and is_number(first_s) and images > 1:
            seconds.append((drawn_s - first_s) / (images - 1))
    return mean_of(np.array(seconds)).estimate() if seconds else None
