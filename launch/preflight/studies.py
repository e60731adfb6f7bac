"""Check a study: the batch and paths of every cell, the rest for one cell per resource shape."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from configs.grid.study_file import load_grid
from configs.run.folder import ROOT
from launch.preflight import request, signal_lead, storage
from launch.preflight.check import CheckResult, passed
from launch.preflight.request import Subject
from launch.submit.plan import overrides_of, shape_of
from launch.submit.site import read_site


@dataclass(frozen=True, kw_only=True)
class StudySubjects:
    """The cells of a study, their names, and how often each is repeated."""

    cells: list[Subject]
    names: list[str]
    repeats: int


def read_subjects(source: Path, overrides: list[str], *, site_name: str | None) -> StudySubjects:
    """Return the cells as they would be submitted; raise `ConfigError` for an invalid study."""
    grid = load_grid(source, overrides)
    shapes = {shape_of(cell.config.resources): cell.config.resources for cell in grid.cells}
    sites = {shape: read_site(ROOT, one, name=site_name) for shape, one in shapes.items()}
    cells = [
        Subject(
            source=grid.source,
            yaml=Path(str(grid.study.base)),
            overrides=overrides_of(cell),
            config=cell.config,
            resumes=None,
            site=sites[shape_of(cell.config.resources)],
        )
        for cell in grid.cells
    ]
    names = [cell.name for cell in grid.cells]
    return StudySubjects(cells=cells, names=names, repeats=grid.study.repeats)


def check_cells(study: StudySubjects) -> Iterator[CheckResult]:
    """Check the cells, shape by shape; results on one shape or cell name it."""
    shapes: dict[str, list[tuple[str, Subject]]] = {}
    for name, cell in zip(study.names, study.cells, strict=True):
        shapes.setdefault(shape_of(cell.config.resources), []).append((name, cell))
    yield passed("study", f"{len(study.cells)} cells, {len(shapes)} shapes")
    for shape, cells in shapes.items():
        for check in (request.batch, request.paths):
            found = [(name, result) for name, cell in cells for result in check(cell)]
            wrong = [_named(result, name) for name, result in found if result.level != "pass"]
            yield from wrong or [_named(found[0][1], f"{shape}, {len(cells)} cells")]
        one = replace(cells[0][1], runs=study.repeats * len(cells))
        yield from (_named(result, shape) for result in _check_one(one))


def _check_one(subject: Subject) -> Iterator[CheckResult]:
    forecast = request.forecast_of(subject)
    yield from request.cluster(subject)
    for check in (storage.room, signal_lead.lead, request.gpu_memory):
        yield from check(subject, forecast)


def _named(result: CheckResult, name: str) -> CheckResult:
    return replace(result, message=f"{name}: {result.message}")
