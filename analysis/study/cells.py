"""The cells of a study: which factors vary over its runs, and what each cell measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.measure.differences import DERIVED_FACTS, follows, signature
from analysis.measure.rate import measure_rate
from analysis.measure.speed import SPEED
from analysis.observations import overlap
from analysis.read.run_log import RunLog
from analysis.stats.contrast import Quantity
from analysis.stats.intervals import Estimate
from analysis.stats.mean import mean_of
from configs.schema.training import Optimizer
from runs.records import is_number, starts

# Keys and facts in which repeats differ, or which do not affect the clock.
NOT_FACTORS = frozenset(["seed", "train.steps", "threads of all ranks"]).union(
    f"optimizer.{name}" for name in Optimizer.model_fields if name != "kind"
)
METRICS = {
    "images_per_s": SPEED,
    "gpu_gb": Quantity(name="memory", better="lower", stretch="peak", margin=0.01),
}
Levels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """The runs of one combination of levels; a metric is absent if no run measured it."""

    levels: Levels
    measured: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class StudyRuns:
    """Factors, in the order of a cell's levels, the cells, and `remarks` on runs left out.

    `overlap` says which runs took time from each other, None if none did.
    """

    factors: tuple[str, ...]
    cells: tuple[CellRuns, ...]
    remarks: tuple[str, ...]
    overlap: str | None = None


def started_runs(logs: Sequence[RunLog]) -> list[RunLog]:
    """Return the runs that are neither queued nor skipped, nor were stopped while they waited."""
    return [log for log in logs if not _has_only_waited(log)]


def _has_only_waited(log: RunLog) -> bool:
    state = log.state
    return state.is_queued or state.is_skipped or (state.is_stopped and not starts(log.events))


def group_cells(logs: Sequence[RunLog]) -> StudyRuns:
    """Group runs into a cell per setting of the factors that vary; keys in step are one factor."""
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
        overlap=overlap(known),
    )


def factors_of(logs: Sequence[RunLog]) -> tuple[tuple[str, ...], list[Levels]]:
    """Return the factors that vary over runs of different settings, and the levels of each run.

    Unlike `group_cells` this includes steps and learning rates.
    """
    return _varying(logs, without=frozenset(["seed", "threads of all ranks"]))


def _varying(
    logs: Sequence[RunLog], *, without: frozenset[str]
) -> tuple[tuple[str, ...], list[Levels]]:
    """Return the names whose values differ, those in step joined, and the levels of each run."""
    known = [dict(signature(log, without=without) or ()) for log in logs]
    names = dict.fromkeys(name for pairs in known for name in pairs)
    columns = {name: tuple(pairs.get(name, "") for pairs in known) for name in names}
    unlike = {name: column for name, column in columns.items() if len(set(column)) > 1}
    derived = tuple(name for name in DERIVED_FACTS if name != "engine")
    keys = [name for name in unlike if not name.startswith(derived)]
    varying = {
        name: column
        for name, column in unlike.items()
        if name == "engine" or not follows(name, keys)
    }
    groups = _in_step(varying)
    # The name with the shortest values labels the levels of its group.
    shortest = [min(members, key=lambda name: len("".join(varying[name]))) for members in groups]
    levels = [tuple(varying[name][row] for name in shortest) for row in range(len(logs))]
    return tuple(" + ".join(members) for members in groups), levels


def _in_step(varying: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Group names whose values map one to one over all runs: their effects cannot be separated."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, column in varying.items():
        order = {value: number for number, value in enumerate(dict.fromkeys(column))}
        groups.setdefault(tuple(order[value] for value in column), []).append(name)
    return list(groups.values())


def _cell(levels: Levels, runs: Sequence[RunLog]) -> CellRuns:
    values = {
        "images_per_s": [measure_rate(run, clock=None).images_per_s for run in runs],
        "gpu_gb": [peak_memory_gb(run) for run in runs],
    }
    measured = {metric: [value for value in seen if value] for metric, seen in values.items()}
    return CellRuns(
        levels=levels,
        measured={
            metric: math.exp(float(np.mean(np.log(seen))))
            for metric, seen in measured.items()
            if seen
        },
    )


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
