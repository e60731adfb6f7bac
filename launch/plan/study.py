"""Plan a study: its runs in order, their resource shapes, and the cells that do not fit."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.grid.cells import Cell, repeat_name
from configs.grid.study_file import Grid
from configs.load import to_tree
from configs.schema import Pretrain, Run, Study
from configs.schema.training import Resources
from configs.table import Row
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.slurm.flags import fits_a_directive
from launch.submit.script import overrides_from


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One repeat of a cell and its place in the order."""

    name: str
    cell: Cell
    repeat: int
    order: int
    shape: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study and its runs in order, with remarks for the user.

    `forecasts` are the known ones, by cell.
    """

    grid: Grid
    runs: list[PlannedRun]
    remarks: list[str]
    forecasts: dict[str, ForecastAnswer]


def make_plan(grid: Grid, *, with_forecast: bool) -> Plan:
    """Plan the runs of a grid; with a forecast those of cells that fit some GPU that they may get.

    Raise `ConfigError` if no cell does.
    """
    if not fits_a_directive(grid.name):
        raise ConfigError(f"{grid.name!r}: invalid as a job name; rename the YAML file")
    remarks = [_repeats(grid.study)]
    forecasts = _forecasts(grid) if with_forecast else {}
    grid, left_out = _fitting(grid, forecasts)
    runs = [
        PlannedRun(
            name=repeat_name(cell.name, repeat),
            cell=cell,
            repeat=repeat,
            order=order,
            shape=shape_of(cell.config.resources),
        )
        for order, (repeat, cell) in enumerate(_in_order(grid.study, grid.cells))
    ]
    if with_forecast:
        remarks += left_out + _without_forecast(grid, forecasts)
    return Plan(grid=grid, runs=runs, remarks=remarks, forecasts=forecasts)


def _forecasts(grid: Grid) -> dict[str, ForecastAnswer]:
    """Return the forecast of each cell that can have one, by name."""
    kinds = (cell for cell in grid.cells if isinstance(cell.config, Pretrain))
    cells = [cell for cell in kinds if cell.config.resources.gpus_per_node > 0]
    answers = forecast.ask([(Path(str(grid.study.base)), overrides_of(cell)) for cell in cells])
    return {cell.name: answer for cell, answer in zip(cells, answers, strict=True)}


def _fitting(grid: Grid, forecasts: Mapping[str, ForecastAnswer]) -> tuple[Grid, list[str]]:
    """Return a grid without the cells that clearly do not fit, and a remark that names them."""
    reasons = {name: why for name, one in forecasts.items() if (why := one.too_large())}
    if not reasons:
        return grid, []
    first, *others = reasons
    rest = f"; too large as well: {', '.join(others)}" if others else ""
    remark = f"left out by forecast (--force keeps it): {first}: {reasons[first]}{rest}"
    cells = [cell for cell in grid.cells if cell.name not in reasons]
    if not cells:
        raise ConfigError(f"{grid.source}: no cell fits; {remark}")
    return replace(grid, cells=cells), [remark]


def _without_forecast(grid: Grid, forecasts: Mapping[str, ForecastAnswer]) -> list[str]:
    failed = [answer.remark for answer in forecasts.values() if answer.remark]
    unknown = sum(cell.name not in forecasts for cell in grid.cells) + len(failed)
    remarks = [f"no memory forecast for {unknown} cells"] if unknown else []
    kept = [forecasts[cell.name] for cell in grid.cells if cell.name in forecasts]
    gpus = [list(answer.gpus.values())[:1] for answer in kept]
    if hours := sum(gpu.get("hours") or 0.0 for found in gpus for gpu in found):
        hours *= grid.study.repeats
        remarks.append(f"about {hours:.2g} hours of steps on all runs, by forecast")
    return remarks + [f"no forecast: {remark}" for remark in failed[:1]]


def overrides_of(cell: Cell) -> list[str]:
    """Return the `key=value` overrides that make the cell from its base."""
    return overrides_from(cell.changes)


def _repeats(study: Study) -> str:
    seeds = study.axes.get("seed")
    order = "in passes over all cells, each shuffled"
    if study.interleave:
        return f"turns of {study.interleave} steps, with --local: rates are compared round by round"
    if seeds:
        return f"repeats: by seed ({len(seeds)}), {order}"
    if study.repeats == 1:
        return (
            "one run per cell: the variation from run to run is not measured; set repeats, with "
            "stop: decided to end as soon as they suffice"
        )
    few = "; intervals of 2 are very wide: set repeats=3 or more" if study.repeats == 2 else ""
    return f"{study.repeats} repeats with the same seed: they show machine noise only{few}"


def _in_order(study: Study, cells: Sequence[Cell]) -> list[tuple[int, Cell]]:
    """Return (repeat, cell) pairs in shuffled passes over all cells; each seed is a pass too."""
    passes: dict[tuple[int, str], list[Cell]] = {}
    for repeat in range(1, study.repeats + 1):
        for cell in cells:
            passes.setdefault((repeat, json.dumps(cell.levels.get("seed"))), []).append(cell)
    ordered = []
    for key in sorted(passes, key=lambda key: key[0]):
        random.Random(f"0 {key}").shuffle(passes[key])
        ordered += [(key[0], cell) for cell in passes[key]]
    return ordered


def shape_of(resources: Resources) -> str:
    """Return a name for the resources; runs of one shape are checked once."""
    memory = f"-{resources.memory_gb}gb" if resources.memory_gb else ""
    size = f"{resources.nodes}x{resources.gpus_per_node}-{resources.gpu or 'any'}"
    return f"{size}-{resources.hours!r}h-{resources.cpus_per_gpu}cpu{memory}"


def digest(config: Run) -> str:
    """Return a hash of the whole config, which identifies a cell."""
    # A name changes nothing that a cell does.
    tree = {key: value for key, value in to_tree(config).items() if key != "name"}
    text = json.dumps(tree, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def table(plan: Plan) -> list[Row]:
    """Return a row per cell, with its levels and the most that one of its runs can cost."""
    first = {run.name: run for run in plan.runs if run.repeat == 1}
    return [
        {
            "cell": run.name,
            **{axis: _level_text(level) for axis, level in run.cell.levels.items()},
            "shape": run.shape,
            "runs": plan.grid.study.repeats,
            "gpu_hours": run.cell.config.resources.gpu_hours,
        }
        for run in (first[cell.name] for cell in plan.grid.cells)
    ]


def _level_text(level: Any) -> str:
    return level if isinstance(level, str) else json.dumps(level)
