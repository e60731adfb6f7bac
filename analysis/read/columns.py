"""Logs from rows of named numbers, in which each step may be told in several rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.read.log import RunLog
from analysis.read.names import STEP, column_of, preference

Rows = Sequence[tuple[int, dict[str, float]]]


def from_rows(rows: Rows, *, path: Path, name: str, kind: str) -> list[RunLog]:
    """One log of (line, numbers by name) rows; none where no row has both a step and a number."""
    merged: dict[int, dict[str, float]] = {}
    lines: dict[int, int] = {}
    chosen = _chosen(rows)
    for line, values in rows:
        step = next((values[key] for key in values if key.lower() in STEP), None)
        if step is None or not 0 <= step < 1 << 53 or step != int(step):
            continue
        row = merged.setdefault(int(step), {})
        row |= {chosen[key]: value for key, value in values.items() if key in chosen}
        if int(step) not in lines or "loss" in {chosen.get(key) for key in values}:
            lines[int(step)] = line
    steps = sorted(step for step, row in merged.items() if row)
    if not steps:
        return []
    names = dict.fromkeys(key for step in steps for key in merged[step])
    return [
        RunLog(
            name=name,
            path=path,
            format=kind,
            step=np.array(steps, dtype=np.int64),
            attempt=np.ones(len(steps), dtype=np.int64),
            line=np.array([lines[step] for step in steps], dtype=np.int64),
            values={
                key: np.array([merged[step].get(key, np.nan) for step in steps]) for key in names
            },
        )
    ]


def _chosen(rows: Rows) -> dict[str, str]:
    """For each foreign name the column that it fills: one name per column, the preferred one."""
    best: dict[str, str] = {}
    for key in dict.fromkeys(key for _, values in rows for key in values):
        if key.lower() in STEP:
            continue
        column = column_of(key)
        if column not in best or preference(key) < preference(best[column]):
            best[column] = key
    return {key: column for column, key in best.items()}
