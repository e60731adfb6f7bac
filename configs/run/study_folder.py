"""A study's folder: study.yaml, cells.tsv with a row per run, cells/<name>/ each a run's folder.

`index` counts the rows, and stays a run's own: an array task finds its cell by it. `order` is its
place in the order of running. Levels are JSON, so that a row is a line whatever they hold.
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
    """One run of a study: where it stands, which repeat of its cell, its resources, its levels."""

    index: int
    order: int
    cell: str
    repeat: int
    shape: str
    digest: str
    levels: dict[str, Any]


@dataclass(frozen=True)
class StudyFolder:
    """The names of everything in one study's folder."""

    path: Path

    @property
    def study_file(self) -> Path:
        """The study, every key of it resolved."""
        return self.path / "study.yaml"

    @property
    def cells_file(self) -> Path:
        """A row per run."""
        return self.path / "cells.tsv"

    @property
    def proofs(self) -> Path:
        """An empty file per cell that ran out of memory, named as the cell."""
        return self.path / "out-of-memory"

    @property
    def jobs(self) -> Path:
        """The text of every array, and the rows that its tasks are."""
        return self.path / "jobs"

    @property
    def stop_file(self) -> Path:
        """Its presence ends a study that runs without Slurm before its next cell."""
        return self.path / "STOP"

    def cell(self, name: str) -> Path:
        """A cell's folder."""
        return self.path / "cells" / name

    def rows(self) -> list[StudyRow]:
        """The rows in the order of their indexes."""
        try:
            lines = self.cells_file.read_text(encoding="utf-8").splitlines()
            axes = lines[0].split("\t")[len(COLUMNS) :]
            return [_row(line.split("\t"), axes) for line in lines[1:]]
        except (OSError, ValueError, IndexError) as error:
            raise ConfigError(f"{self.cells_file}: is no list of cells ({error})") from None

    def in_grid_order(self) -> list[StudyRow]:
        """The rows as the axes list their levels, repeats behind one another."""
        axes = [(axis, list(levels)) for axis, levels in self._axes().items()]
        return sorted(self.rows(), key=lambda row: (_places(row, axes), row.repeat))

    def _axes(self) -> dict[str, Any]:
        if not self.study_file.exists():
            return {}
        tree = parse_yaml(self.study_file.read_text(encoding="utf-8"), source=str(self.study_file))
        return (tree or {}).get("axes") or {}

    def row(self, index: int) -> StudyRow:
        """The row of an array task."""
        rows = self.rows()
        if not 0 <= index < len(rows):
            raise ConfigError(
                f"{self.cells_file}: has no cell {index}; they end at {len(rows) - 1}"
            )
        return rows[index]

    def write_rows(self, rows: Iterable[StudyRow]) -> None:
        """Replace cells.tsv; rows that were there keep their index."""
        known = list(rows)
        axes = dict.fromkeys(axis for row in known for axis in row.levels)
        lines = ["\t".join([*COLUMNS, *axes])] + [_line(row, list(axes)) for row in known]
        replace_file(self.cells_file, "\n".join(lines) + "\n")


def is_study_folder(path: Path) -> bool:
    """Whether a folder is a study's."""
    return (path / "cells.tsv").is_file()


def study_of(run: Path) -> StudyFolder | None:
    """The study that a run's folder is a cell of."""
    folder = run.parent.parent
    return StudyFolder(folder) if run.parent.name == "cells" and is_study_folder(folder) else None


def _places(row: StudyRow, axes: list[tuple[str, list[Any]]]) -> list[int]:
    """Where a row's levels stand on their axes; what an axis does not list is last."""
    told = [(levels, row.levels.get(axis)) for axis, levels in axes]
    return [levels.index(mine) if mine in levels else len(levels) for levels, mine in told]


def _row(fields: list[str], axes: list[str]) -> StudyRow:
    index, order, cell, repeat, shape, digest, *levels = fields
    told = zip(axes, levels, strict=True)
    return StudyRow(
        index=int(index),
        order=int(order),
        cell=cell,
        repeat=int(repeat),
        shape=shape,
        digest=digest,
        levels={axis: json.loads(level) for axis, level in told if level},
    )


def _line(row: StudyRow, axes: list[str]) -> str:
    """A line; an axis that came later is empty in older rows."""
    levels = [json.dumps(row.levels[axis]) if axis in row.levels else "" for axis in axes]
    first = (row.index, row.order, row.cell, row.repeat, row.shape, row.digest)
    return "\t".join([*map(str, first), *levels])
