"""A study folder: study.yaml, cells.tsv with one row per run, and a run folder per cell in cells/.

`index` counts the rows and never changes: an array task finds its cell by it. `order` is the
position in the order of running. Levels are JSON, so that any value fits on one line.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.schema.study import COLUMNS
from configs.yaml12 import parse_yaml


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """One run of a study; `shape` names its resources, `digest` identifies its config."""

    index: int
    order: int
    cell: str
    repeat: int
    shape: str
    digest: str
    levels: dict[str, Any]


@dataclass(frozen=True)
class StudyFolder:
    """The files of one study folder."""

    path: Path

    @property
    def study_file(self) -> Path:
        """The study with every key resolved."""
        return self.path / "study.yaml"

    @property
    def cells_file(self) -> Path:
        """The table of runs."""
        return self.path / "cells.tsv"

    @property
    def proofs(self) -> Path:
        """The folder with an empty file for each cell that ran out of memory, named as the cell."""
        return self.path / "out-of-memory"

    @property
    def jobs(self) -> Path:
        """The folder with the script of every job array and the rows of its tasks."""
        return self.path / "jobs"

    @property
    def stop_file(self) -> Path:
        """If this file exists, a study that runs without Slurm ends before its next cell."""
        return self.path / "STOP"

    def cell(self, name: str) -> Path:
        """Return the run folder of a cell."""
        return self.path / "cells" / name

    def rows(self) -> list[StudyRow]:
        """Return the rows, sorted by index."""
        try:
            lines = self.cells_file.read_text(encoding="utf-8").splitlines()
            axes = lines[0].split("\t")[len(COLUMNS) :]
            return [_row(line.split("\t"), axes) for line in lines[1:]]
        except (OSError, ValueError, IndexError) as error:
            raise ConfigError(f"{self.cells_file}: not a table of cells ({error})") from None

    def in_grid_order(self) -> list[StudyRow]:
        """Return the rows in the order of the levels on the axes, repeats of a cell together."""
        axes = [(axis, list(levels)) for axis, levels in self._axes().items()]
        return sorted(self.rows(), key=lambda row: (_positions(row, axes), row.repeat))

    def _axes(self) -> dict[str, Any]:
        if not self.study_file.exists():
            return {}
        tree = parse_yaml(self.study_file.read_text(encoding="utf-8"), source=str(self.study_file))
        return (tree or {}).get("axes") or {}

    def row(self, index: int) -> StudyRow:
        """Return the row of an array task."""
        rows = self.rows()
        if not 0 <= index < len(rows):
            raise ConfigError(
                f"{self.cells_file}: has no cell {index}; the last is {len(rows) - 1}"
            )
        return rows[index]

    def write_rows(self, rows: Iterable[StudyRow]) -> None:
        """Replace cells.tsv."""
        known = list(rows)
        axes = dict.fromkeys(axis for row in known for axis in row.levels)
        lines = ["\t".join([*COLUMNS, *axes])] + [_line(row, list(axes)) for row in known]
        replace_file(self.cells_file, "\n".join(lines) + "\n")


def is_study_folder(path: Path) -> bool:
    """Return whether a folder is a study folder."""
    return (path / "cells.tsv").is_file()


def study_of(run: Path) -> StudyFolder | None:
    """Return the study that a run is a cell of, or None."""
    folder = run.parent.parent
    return StudyFolder(folder) if run.parent.name == "cells" and is_study_folder(folder) else None


def _positions(row: StudyRow, axes: list[tuple[str, list[Any]]]) -> list[int]:
    """Return the positions of a row's levels on the axes; unlisted levels come last."""
    pairs = [(levels, row.levels.get(axis)) for axis, levels in axes]
    return [levels.index(mine) if mine in levels else len(levels) for levels, mine in pairs]


def _row(fields: list[str], axes: list[str]) -> StudyRow:
    index, order, cell, repeat, shape, digest, *levels = fields
    return StudyRow(
        index=int(index),
        order=int(order),
        cell=cell,
        repeat=int(repeat),
        shape=shape,
        digest=digest,
        levels={axis: json.loads(level) for axis, level in zip(axes, levels, strict=True) if level},
    )


def _line(row: StudyRow, axes: list[str]) -> str:
    """Return the line of a row; an axis that was added later is empty in older rows."""
    levels = [json.dumps(row.levels[axis]) if axis in row.levels else "" for axis in axes]
    first = (row.index, row.order, row.cell, row.repeat, row.shape, row.digest)
    return "\t".join([*map(str, first), *levels])
