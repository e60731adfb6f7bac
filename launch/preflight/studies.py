"""The checks of a study: every cell's batch and paths, and one cell of each shape for the rest."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from configs.grid.cells import Cell
from configs.grid.study_file import Grid, load_grid
from configs.run.folder import ROOT
from launch.preflight import forecast, request, signal_lead, storage
from launch.preflight.check import CheckResult, passed
from launch.preflight.subject import Subject
from launch.submit.plan import shape_of
from launch.submit.site import Site, ask_site


def lines(source: Path, overrides: list[str], *, site_name: str | None) -> Iterator[CheckResult]:
    """The answers on a study; those on one shape name it. `ConfigError` for what is none."""
    grid = load_grid(source, overrides)
    shapes: dict[str, list[Cell]] = {}
    for cell in grid.cells:
        shapes.setdefault(shape_of(cell.config.resources), []).append(cell)
    yield passed("study", f"{len(grid.cells)} cells, {len(shapes)} shapes")
    for shape, cells in shapes.items():
        site = ask_site(ROOT, cells[0].config.resources, name=site_name)
        subjects = [_subject(grid, cell, site) for cell in cells]
        yield from _of_every_cell(subjects, cells, shape)
        runs = grid.study.repeats * len(cells)
        yield from (_named(line, shape) for line in _of_one(replace(subjects[0], runs=runs)))


def a_cell(source: Path, overrides: list[str], *, site_name: str | None) -> Subject:
    """The first cell, for the checks of the machine, which are alike for all."""
    grid = load_grid(source, overrides)
    site = ask_site(ROOT, grid.cells[0].config.resources, name=site_name)
    return _subject(grid, grid.cells[0], site)


def _subject(grid: Grid, cell: Cell, site: Site) -> Subject:
    # JSON is YAML: each value is read back as it is.
    changes = [f"{name}={json.dumps(value)}" for name, value in cell.changes.items()]
    return Subject(
        source=grid.source,
        yaml=Path(str(grid.study.base)),
        overrides=changes,
        config=cell.config,
        resumes=None,
        site=site,
    )


def _of_every_cell(subjects: list[Subject], cells: list[Cell], shape: str) -> Iterator[CheckResult]:
    for check in (request.batch, request.paths):
        found = [
            (cell, line) for cell, one in zip(cells, subjects, strict=True) for line in check(one)
        ]
        wrong = [_named(line, cell.name) for cell, line in found if line.level != "pass"]
        yield from wrong or [_named(found[0][1], f"{shape}, {len(cells)} cells")]


def _of_one(one: Subject) -> Iterator[CheckResult]:
    outlook = forecast.ask(one)
    yield from request.partition(one)
    for judge in (storage.room, signal_lead.lead, forecast.memory):
        yield from judge(one, outlook)


def _named(line: CheckResult, name: str) -> CheckResult:
    return replace(line, said=f"{name}: {line.said}")
