"""Arms: runs of one recipe, measured on one clock, and the rate of each."""

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.gpus.load import steady_load
from analysis.gpus.mfu import mfu
from analysis.measure.differences import recipe
from analysis.measure.rate import MeasuredRate
from analysis.observations import group_alike, recipe_among
from analysis.one_training import distinct_runs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, estimate_fields
from analysis.stats.samples import one_sample


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Repeats that differ in their seed only, measured on one clock; often a single run."""

    runs: tuple[MeasuredRate, ...]

    @property
    def name(self) -> str:
        """The first run's name, and the number of further repeats."""
        repeats = len(self.runs) - 1
        return self.runs[0].log.name + (f" (+{repeats} alike)" if repeats else "")

    @property
    def logs(self) -> list[RunLog]:
        """The logs of its runs."""
        return [run.log for run in self.runs]

    @property
    def rate(self) -> Estimate | None:
        """Units per second, with the run's own interval or that between repeats."""
        if len(self.runs) == 1:
            return self.runs[0].rate
        logs = np.array([math.log(run.rate.value) for run in self.runs if run.rate])
        if len(logs) < 2:
            return None
        if self.doubt or self.runs[0].evaluates:
            return Estimate(value=math.exp(logs.mean()))
        return one_sample(logs).widened(max(run.blur for run in self.runs)).ratio()

    @property
    def fault(self) -> str | None:
        """Which run a fault of its node slowed down, None if none did."""
        faults = ((run.log.name, steady_load(run).fault) for run in self.runs)
        told = (f"a GPU of {name} was throttled by {fault}" for name, fault in faults if fault)
        return next(told, None)

    @property
    def doubt(self) -> str | None:
        """Why the rate of a run may be another one."""
        return next(filter(None, (run.doubt for run in self.runs)), None)


def rate_fields(arm: Arm) -> dict[str, Any]:
    """Return the rate of an arm, in steps or in the units that its clock counts, and its use."""
    first, rate = arm.runs[0], arm.rate
    per_unit = first.images_per_unit
    images_per_s = rate.value * per_unit if rate and per_unit else None
    return {
        "counts": first.unit,
        **estimate_fields("units_per_s", rate if first.unit != "step" else None),
        **estimate_fields("steps_per_s", rate if first.unit == "step" else None),
        "images_per_s": images_per_s,
        "mfu": mfu(first.log, images_per_s),
    }


def group_arms(runs: Sequence[MeasuredRate]) -> list[Arm]:
    """Group runs into arms, whose runs differ only in seed and in keys that affect nothing.

    Two logs in one folder, or below it, may be of one training, which counts once. Those without a
    config, and texts whose seeds do not tell them apart, are arms of their own.
    """
    folders = {_folder_of(run.log) for run in runs}

    def highest_folder(log: RunLog) -> Path:
        above = reversed([log.path, *log.path.parents])
        return next(folder for folder in above if folder in folders)

    def training(log: RunLog) -> Hashable:
        return highest_folder(log) if log.lines_read else recipe(log) or highest_folder(log)

    kept = [
        run
        for group in group_alike(runs, lambda run: training(run.log))
        for run in _distinct(group)
    ]
    logs = [run.log for run in kept]
    groups = group_alike(kept, lambda run: recipe_among(run.log, logs))
    return [Arm(runs=tuple(group)) for group in groups]


def _folder_of(log: RunLog) -> Path:
    """Return the folder of a training, in which each checkpoint may have its log so far."""
    folder = log.path.parent
    return folder.parent if re.fullmatch(r"checkpoint[-_]\d+", folder.name) else folder


def _distinct(runs: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """Return the runs that are no copies of others; the first one says which are left out."""
    logs, remarks = distinct_runs([run.log for run in runs])
    kept = {id(log) for log in logs}
    first, *others = (run for run in runs if id(run.log) in kept)
    return [replace(first, remarks=(*first.remarks, *remarks)), *others]
