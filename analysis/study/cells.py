"""The cells of a study: what varies over its runs, and what each cell measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.measure.differences import DERIVED_FACTS, follows, signature
from analysis.measure.speed import measure_rate
from analysis.read.run_log import RunLog

# Repeats differ in these, and nothing is learnt of the clock from them.
NOT_FACTORS = frozenset(["seed", "train.steps", "optimizer.", "threads of all ranks"])
METRICS = ("images_per_s", "gpu_gb")
Levels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """The runs of one combination of levels; a metric is absent where no run measured it.

    `out_of_memory` says that every run of it failed so: it is censored, not missing.
    """

    name: str
    levels: Levels
    measured: Mapping[str, float]
    out_of_memory: bool


@dataclass(frozen=True, kw_only=True)
class StudyRuns:
    """Factors, in the order of a cell's levels, and the cells; `remarks` on what was left out."""

    factors: tuple[str, ...]
    cells: tuple[CellRuns, ...]
    remarks: tuple[str, ...]


def started_runs(logs: Sequence[RunLog]) -> list[RunLog]:
    """Runs that a machine has begun, or logs of others: of what only waits nothing can be told."""
    return [log for log in logs if (log.state or {}).get("event") not in ("queued", "skipped")]


def group_cells(logs: Sequence[RunLog]) -> StudyRuns:
    """The factors that vary over runs, keys that vary in step as one, and a cell per setting."""
    known = [log for log in logs if log.config is not None]
    factors, every = _varying(known, without=NOT_FACTORS)
    groups: dict[Levels, list[RunLog]] = {}
    for levels, log in zip(every, known, strict=True):
        groups.setdefault(levels, []).append(log)
    return StudyRuns(
        factors=factors,
        cells=tuple(_cell(levels, runs) for levels, runs in groups.items()),
        remarks=tuple(
            f"{log.name}: left out: its config is not known" for log in logs if log.config is None
        ),
    )


def factors_of(logs: Sequence[RunLog]) -> tuple[tuple[str, ...], list[Levels]]:
    """What was asked otherwise over runs that are no repeats of one another, and each one's levels.

    Unlike a study's factors these may be steps and rates of learning too.
    """
    return _varying(logs, without=frozenset(["seed", "threads of all ranks"]))


def _varying(
    logs: Sequence[RunLog], *, without: frozenset[str]
) -> tuple[tuple[str, ...], list[Levels]]:
    """Names whose values differ, those that differ in step as one, and the levels of each run."""
    known = [dict(signature(log, without=without) or ()) for log in logs]
    names = dict.fromkeys(name for pairs in known for name in pairs)
    columns = {name: tuple(pairs.get(name, "") for pairs in known) for name in names}
    unlike = {name: column for name, column in columns.items() if len(set(column)) > 1}
    asked = [name for name in unlike if not name.startswith(tuple(DERIVED_FACTS))]
    varying = {name: column for name, column in unlike.items() if not follows(name, asked)}
    groups = _in_step(varying)
    # Of names that go together, the one with the shortest values tells its runs apart best.
    shortest = [min(members, key=lambda name: len("".join(varying[name]))) for members in groups]
    levels = [tuple(varying[name][place] for name in shortest) for place in range(len(logs))]
    return tuple(" + ".join(members) for members in groups), levels


def _in_step(varying: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Names grouped: those whose values go one to one over all runs cannot be told apart."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, column in varying.items():
        order = {value: place for place, value in enumerate(dict.fromkeys(column))}
        groups.setdefault(tuple(order[value] for value in column), []).append(name)
    return list(groups.values())


def _cell(levels: Levels, runs: Sequence[RunLog]) -> CellRuns:
    values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for run in runs:
        rate, memory = measure_rate(run, clock=None).images_per_s, run.column("gpu_gb")
        if rate:
            values["images_per_s"].append(rate)
        if (memory > 0).any():
            values["gpu_gb"].append(float(np.nanmax(memory)))
    return CellRuns(
        name=runs[0].name,
        levels=levels,
        measured={
            metric: math.exp(float(np.mean(np.log(seen))))
            for metric, seen in values.items()
            if seen
        },
        out_of_memory=all((run.state or {}).get("reason") == "oom" for run in runs),
    )
