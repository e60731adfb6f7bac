"""What a study will run: its runs in their order, their shapes, and those that are hopeless."""

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from configs.checks.batch import check_ranks
from configs.checks.paths import check_paths
from configs.errors import ConfigError
from configs.grid.cells import Cell, repeat_name
from configs.grid.study_file import Grid
from configs.load import to_tree
from configs.schema import Study
from configs.schema.training import Resources
from launch.forecast import forecasts
from launch.slurm.flags import fits_a_directive
from launch.table import Row as TableRow


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run: a repeat of a cell, its place in the order, and why it is dropped, if it is."""

    name: str
    cell: Cell
    repeat: int
    order: int
    shape: str
    dropped: str | None

    @property
    def gpu_hours(self) -> float:
        """GPUs x the time limit: what it may cost at most."""
        asked = self.cell.config.resources
        return asked.nodes * asked.gpus_per_node * asked.hours


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study and its runs, in the order in which they are to run; `remarks` for the reader.

    `absent` says what the runs are to read and is not here: until it is, nothing can be submitted.
    """

    grid: Grid
    runs: list[PlannedRun]
    remarks: list[str]
    absent: str | None

    @property
    def kept(self) -> list[PlannedRun]:
        """The runs that are not hopeless."""
        return [run for run in self.runs if run.dropped is None]

    @property
    def gpu_hours(self) -> float:
        """Of all the runs that are kept, at most."""
        return sum(run.gpu_hours for run in self.kept)

    def shapes(self) -> dict[str, int]:
        """How many runs each shape has that are kept: an array each."""
        return dict(Counter(run.shape for run in self.kept))


def make_plan(grid: Grid, *, with_forecast: bool) -> Plan:
    """The runs of a grid; `ConfigError` for a cell that could not even begin."""
    if not fits_a_directive(grid.source.stem):
        raise ConfigError(f"{grid.source.stem!r}: a job cannot be named so; rename the YAML file")
    for cell in grid.cells:
        _check_ranks(cell, source=str(grid.source))
    known = forecasts(grid.cells, base=str(grid.study.base)) if with_forecast else None
    hopeless = known.hopeless if known else {}
    runs = [
        PlannedRun(
            name=repeat_name(cell.name, repeat),
            cell=cell,
            repeat=repeat,
            order=order,
            shape=shape_of(cell.config.resources),
            dropped=hopeless.get(cell.name),
        )
        for order, (repeat, cell) in enumerate(_in_order(grid.study, grid.cells))
    ]
    remarks = [_repeats(grid.study)]
    if known and known.unknown:
        remarks.append(f"{known.unknown} cells kept of which no forecast can be made")
    if known and known.remark:
        remarks.append(known.remark)
    return Plan(grid=grid, runs=runs, remarks=remarks, absent=_absent(grid))


def _check_ranks(cell: Cell, *, source: str) -> None:
    try:
        check_ranks(cell.config, world=cell.config.resources.world)
    except ConfigError as error:
        raise ConfigError(_of_cell(cell, source, error)) from None


def _absent(grid: Grid) -> str | None:
    """What the first cell lacks that lacks something."""
    for cell in grid.cells:
        try:
            check_paths(cell.config)
        except ConfigError as error:
            return _of_cell(cell, str(grid.source), error)
    return None


def _of_cell(cell: Cell, source: str, error: ConfigError) -> str:
    return f"{source}, cell {cell.name}: {error}; or name the combination in leave_out"


def _repeats(study: Study) -> str:
    seeds = study.axes.get("seed")
    order = f"in passes over all cells, each shuffled by order_seed {study.order_seed}"
    if seeds:
        return f"repeats: by seed ({len(seeds)}), {order}"
    if study.repeats == 1:
        return "one run per cell: what varies from run to run is not measured; set repeats"
    return f"repeats: {study.repeats}, alike to the seed: the machine's noise, not the seed's"


def _in_order(study: Study, cells: Sequence[Cell]) -> list[tuple[int, Cell]]:
    """Repeats and cells, a shuffled pass over all cells after another; seeds are passes too."""
    passes: dict[tuple[int, str], list[Cell]] = {}
    for repeat in range(1, study.repeats + 1):
        for cell in cells:
            passes.setdefault((repeat, json.dumps(cell.levels.get("seed"))), []).append(cell)
    ordered = []
    for key in sorted(passes, key=lambda key: key[0]):
        random.Random(f"{study.order_seed} {key}").shuffle(passes[key])
        ordered += [(key[0], cell) for cell in passes[key]]
    return ordered


def shape_of(asked: Resources) -> str:
    """A name for what is asked of the cluster, alike where an array can be one."""
    kind = asked.gpu or "any"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,23}", kind):
        kind = f"gpu-{hashlib.sha256(kind.encode()).hexdigest()[:6]}"
    memory = f"-{asked.memory_gb}gb" if asked.memory_gb else ""
    size = f"{asked.nodes}x{asked.gpus_per_node}-{kind}"
    return f"{size}-{asked.hours!r}h-{asked.cpus_per_gpu}cpu{memory}"


def digest(cell: Cell) -> str:
    """A hash of the whole config, by which a cell is known again."""
    text = json.dumps(to_tree(cell.config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table(plan: Plan) -> list[TableRow]:
    """A row per run in its order, with its levels."""
    return [
        {
            "order": run.order,
            "cell": run.name,
            **{axis: _shown(level) for axis, level in run.cell.levels.items()},
            "shape": run.shape,
            "gpu_hours": f"{run.gpu_hours:g}",
            "dropped": run.dropped,
        }
        for run in plan.runs
    ]


def _shown(level: Any) -> str:
    return level if isinstance(level, str) else json.dumps(level)


def to_json(plan: Plan) -> dict[str, Any]:
    """Everything, for machines."""
    study = to_tree(plan.grid.study)
    return {
        "study": study,
        "cells": [
            {
                "order": run.order,
                "cell": run.name,
                "repeat": run.repeat,
                "levels": run.cell.levels,
                "shape": run.shape,
                "gpu_hours": run.gpu_hours,
                "dropped": run.dropped,
            }
            for run in plan.runs
        ],
        "arrays": plan.shapes(),
        "gpu_hours": plan.gpu_hours,
        "order_seed": plan.grid.study.order_seed,
        "remarks": plan.remarks,
        "absent": plan.absent,
    }
