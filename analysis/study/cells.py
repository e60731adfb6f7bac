"""The cells of a study: which factors vary over its runs, and what a run of one measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.measure.arms import Arm, group_arms, rate_fields
from analysis.measure.differences import DERIVED_FACTS, follows, recipe
from analysis.measure.loss import Compared, final_loss
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED
from analysis.observations import nodes_of
from analysis.read.machine import THREADS, machine
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, estimate_fields
from analysis.stats.mean import mean_of
from analysis.stats.samples import one_sample
from analysis.study.compare import compare_arms
from analysis.verdict import FIELDS
from configs.table import Row
from runs.records import is_number, starts

Levels = tuple[str, ...]
MACHINE = (
    "gpu", "gpu_memory_gb", "cpu", "nodes", "ranks", "versions.torch", "versions.cuda", "code",
)  # fmt: skip


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


def cell_rows(logs: Sequence[RunLog], *, compared: Compared) -> list[dict[str, Any]]:
    """Return one row per cell, the first being the baseline; absent values are None.

    The fields of the judgement are about the speed, and with `loss_` before them about what is
    `compared`; all of them share one error. The column of what is compared is the mean over the
    repeats.
    """
    arms = group_arms(measure_rates(logs))
    found = compare_arms(arms, [compared], if_known=False, as_cells=True)
    return rows_of(arms, found, of=compared.of)


def rows_of(arms: Sequence[Arm], found: Sequence[Row], *, of: str = "loss") -> list[dict[str, Any]]:
    """Return one row per cell with what rows of `compare_arms` say about speed and `of`."""
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    # Runs that ended before they knew their GPU may have the levels of another cell.
    is_told = len(arms) == len({*levels}) > 1
    rows = []
    for arm, own in zip(arms, levels, strict=True):
        peaks = filter(None, (peak_memory_gb(run.log) for run in arm.runs))
        rows.append(
            dict(zip(factors, own, strict=True))
            | {"cell": None if is_told else arm.name, "runs": len(arm.runs)}
            | rate_fields(arm)
            | _verdict(found, arm, SPEED.name)
            | _image_seconds(arm)
            | {"gpu_gb": max(peaks, default=None), of: _final_value(arm, of)}
            | _verdict(found, arm, Compared(of=of).quantity.name, prefix="loss_")
            | {"ended_early": _early_ends(arm)}
        )
    return rows


def _verdict(found: Sequence[Row], arm: Arm, quantity: str, *, prefix: str = "") -> dict[str, Any]:
    """Return the fields of an arm's verdict on a quantity; None for the first arm's."""
    own = (row for row in found if (row["run"], row["quantity"]) == (arm.name, quantity))
    row = next(own, {})
    return {f"{prefix}{name}": row.get(name) for name in FIELDS}


def _final_value(arm: Arm, of: str) -> float | None:
    known = [mean.value for run in arm.runs if (mean := final_loss(run.log, of=of)) is not None]
    return float(np.mean(known)) if known else None


def _image_seconds(arm: Arm) -> dict[str, float | None]:
    """Return seconds per generated image, with the interval between repeats or within one run."""
    each = [found for run in arm.runs if (found := seconds_per_image(run.log)) is not None]
    if len(each) > 1:
        return estimate_fields("image_s", one_sample(np.log([one.value for one in each])).ratio())
    return estimate_fields("image_s", each[0] if each else None)


def _early_ends(arm: Arm) -> str | None:
    """Return why repeats ended before their last step; a log without events does not tell."""
    states = [run.log.state for run in arm.runs if run.log.events and not run.log.state.is_done]
    reasons = ["not ended" if one.is_started else one.reason or one.name for one in states]
    return ", ".join(dict.fromkeys(reasons)) or None


def hardware_text(logs: Sequence[RunLog]) -> str:
    """Return the hardware and versions of all runs as a phrase; `or` joins different values."""
    machines = [machine(log.facts) for log in logs]
    parts = []
    for name in MACHINE:
        values = dict.fromkeys(str(facts[name]) for facts in machines if name in facts)
        if values:
            parts.append(f"{name.removeprefix('versions.')} {' or '.join(values)}")
    return ", ".join(parts)
