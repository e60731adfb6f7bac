"""Plan a study: its runs in order, their resource shapes, and the cells that do not fit."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from configs.errors import ConfigError
from configs.grid.cells import Cell, repeat_name
from configs.grid.study_file import Grid
from configs.load import to_tree
from configs.schema import Pretrain, Run, Study
from configs.schema.training import Resources
from configs.table import Row
from configs.yaml12 import dump_value
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.slurm.flags import fits_a_directive
from runs.study_folder import StudyRow


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study, the rows of its runs in order, and their cells by the name of the run.

    `forecasts` are the known ones, by cell.
    """

    grid: Grid
    rows: list[StudyRow]
    cells: dict[str, Cell]
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
    digests = {cell.name: digest(cell.config) for cell in grid.cells}
    ordered = _in_order(grid.study, grid.cells)
    rows = [
        StudyRow(
            index=order,
            order=order,
            cell=repeat_name(cell.name, repeat),
            repeat=repeat,
            shape=shape_of(cell.config.resources),
            digest=digests[cell.name],
            levels=cell.levels,
        )
        for order, (repeat, cell) in enumerate(ordered)
    ]
    cells = {row.cell: cell for row, (_, cell) in zip(rows, ordered, strict=True)}
    if with_forecast:
        remarks += left_out + _hours(grid, forecasts)
    return Plan(grid=grid, rows=rows, cells=cells, remarks=remarks, forecasts=forecasts)


def _forecasts(grid: Grid) -> dict[str, ForecastAnswer]:
    """Return the forecast of each cell that can have one, by name."""
    configs = {cell.name: cell.config for cell in grid.cells}
    asked = {
        name: config
        for name, config in configs.items()
        if isinstance(config, Pretrain) and config.resources.gpus_per_node > 0
    }
    return dict(zip(asked, forecast.ask([*asked.values()]), strict=True))


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


def _hours(grid: Grid, forecasts: Mapping[str, ForecastAnswer]) -> list[str]:
    """Return a remark on the hours of all runs, if they are forecast."""
    kept = [forecasts[cell.name] for cell in grid.cells if cell.name in forecasts]
    gpus = [gpu for answer in kept for gpu in list(answer.gpus.values())[:1]]
    hours = grid.study.repeats * sum(gpu.get("hours") or 0.0 for gpu in gpus)
    return [f"about {hours:.2g} hours of steps on all runs, by forecast"] if hours else []


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
    return [
        {
            "cell": cell.name,
            **{axis: dump_value(level) for axis, level in cell.levels.items()},
            "shape": shape_of(cell.config.resources),
            "runs": plan.grid.study.repeats,
            "gpu_hours": cell.config.resources.gpu_hours,
        }
        for cell in plan.grid.cells
    ]
