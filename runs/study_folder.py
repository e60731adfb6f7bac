"""A study folder: study.yaml, cells.tsv with one row per run, and a run folder per cell in cells/.

`index` counts the rows, and `order` is the position in the order of running. Levels are JSON, so
that any value fits on one line.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from configs.disk import Below, replace_file
from configs.errors import ConfigError
from configs.files import read_text
from configs.load import read_tree, resolve_study
from configs.schema import Study
from configs.schema.study import COLUMNS


class StudyRow(BaseModel):
    """One run of a study; `shape` names its resources, `digest` identifies its config."""

    model_config = ConfigDict(frozen=True)
    index: int
    order: int
    cell: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    repeat: int
    shape: str
    digest: str
    levels: dict[str, Any]


@dataclass(frozen=True)
class StudyFolder:
    """The files of one study folder."""

    path: Path
    study_file = Below("study.yaml")  # the study with every key resolved
    cells_file = Below("cells.tsv")  # the table of runs
    jobs = Below("jobs")  # the folder of the output of its jobs
    stop_file = Below("STOP")  # if it exists, a study without Slurm ends before its next cell

    def cell(self, name: str) -> Path:
        """Return the run folder of a cell."""
        return self.path / "cells" / name

    def rows(self) -> list[StudyRow]:
        """Return the rows, sorted by index; raise `ConfigError`, which names a damaged line."""
        rows: list[StudyRow] = []
        try:
            head, *lines = read_text(self.cells_file).splitlines()
            axes = head.split("\t")[len(COLUMNS) :]
            for line in lines:
                rows.append(_row(line.split("\t"), axes))
        except (OSError, ValueError, RecursionError) as error:
            problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            place = f"{self.cells_file}, line {len(rows) + 2}"
            raise ConfigError(f"{place}: not a table of cells: {problem}; restore it") from None
        rows.sort(key=lambda row: row.index)
        if [row.index for row in rows] != list(range(len(rows))):
            raise ConfigError(f"{self.cells_file}: a row is missing or doubled; restore it")
        return rows

    def study(self) -> Study:
        """Return the study with every key resolved; raise `ConfigError` if it is damaged."""
        return resolve_study(read_tree(self.study_file), source=str(self.study_file))

    def in_grid_order(self) -> list[StudyRow]:
        """Return the rows in the order of the levels on the axes, repeats of a cell together."""
        study = self.study() if self.study_file.exists() else None
        axes = [(axis, list(levels)) for axis, levels in study.axes.items()] if study else []
        return sorted(self.rows(), key=lambda row: (_positions(row, axes), row.repeat))

    def write_rows(self, rows: Iterable[StudyRow]) -> None:
        """Replace cells.tsv."""
        known = list(rows)
        axes = dict.fromkeys(axis for row in known for axis in row.levels)
        lines = ["\t".join([*COLUMNS, *axes])] + [_line(row, list(axes)) for row in known]
        replace_file(self.cells_file, "\n".join(lines) + "\n")


def is_study_folder(path: Path) -> bool:
    """Return whether a folder is a study folder."""
    return os.path.isfile(path / "cells.tsv")


def study_of(run: Path) -> StudyFolder | None:
    """Return the study that a run is a cell of, or None."""
    folder = run.parent.parent
    return StudyFolder(folder) if run.parent.name == "cells" and is_study_folder(folder) else None


def _positions(row: StudyRow, axes: list[tuple[str, list[Any]]]) -> list[int]:
    """Return the positions of a row's levels on the axes; unlisted levels come last."""
    pairs = [(levels, row.levels.get(axis)) for axis, levels in axes]
    return [levels.index(mine) if mine in levels else len(levels) for levels, mine in pairs]


def _row(fields: list[str], axes: list[str]) -> StudyRow:
    names = [*COLUMNS, *axes]
    if len(fields) != len(names):
        raise ValueError(f"expected {len(names)} columns, found {len(fields)}")
    named = dict(zip(names, fields, strict=True))
    levels = {axis: json.loads(named[axis]) for axis in axes if named[axis]}
    return StudyRow.model_validate({name: named[name] for name in COLUMNS} | {"levels": levels})


def _line(row: StudyRow, axes: list[str]) -> str:
    """Return the line of a row; an axis that was added later is empty in older rows."""
    levels = [json.dumps(row.levels[axis]) if axis in row.levels else "" for axis in axes]
    return "\t".join([*(str(getattr(row, name)) for name in COLUMNS), *levels])
