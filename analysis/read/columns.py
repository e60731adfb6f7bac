"""Logs from rows of named numbers, in which each step may be told in several rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.names import STEP, column_of, preference
from analysis.read.run_log import Ints, RunLog
from analysis.stats.intervals import Floats

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


@dataclass(frozen=True, kw_only=True)
class Series:
    """What was told under one foreign name: steps, lines, values and times, each [n]."""

    step: Ints
    line: Ints
    value: Floats
    time: Floats


def from_series(
    told: Mapping[str, Series], *, path: Path, name: str, kind: str, remarks: tuple[str, ...] = ()
) -> list[RunLog]:
    """One log of series by foreign name, laid side by side on all their steps; none of none.

    Of a step told twice the last stands.
    """
    chosen = _preferred(told)
    kept = {column: told[key] for key, column in chosen.items() if len(told[key].step)}
    if not kept:
        return []
    steps = np.unique(np.concatenate([series.step for series in kept.values()]))
    steps = steps[(steps >= 0) & (steps < 1 << 53)]
    values = {column: np.full(len(steps), np.nan) for column in ("time", *kept)}
    line = np.zeros(len(steps), dtype=np.int64)
    # The loss comes last, so that a row's line and time are those of its loss.
    for column, series in sorted(kept.items(), key=lambda item: item[0] == "loss"):
        inside = (series.step >= 0) & (series.step < 1 << 53)
        at = np.searchsorted(steps, series.step[inside])
        finite = np.isfinite(series.value[inside])
        values[column][at] = np.where(finite, series.value[inside], np.nan)
        values["time"][at], line[at] = series.time[inside], series.line[inside]
    return [
        RunLog(
            name=name,
            path=path,
            format=kind,
            step=steps,
            attempt=np.ones(len(steps), dtype=np.int64),
            line=line,
            values={key: value for key, value in values.items() if not np.isnan(value).all()},
            remarks=remarks,
        )
    ]


def _chosen(rows: Rows) -> dict[str, str]:
    """The columns of every name in rows but the step's."""
    names = dict.fromkeys(key for _, values in rows for key in values)
    return _preferred([name for name in names if name.lower() not in STEP])


def _preferred(names: Iterable[str]) -> dict[str, str]:
    """For each foreign name the column that it fills: one name per column, the preferred one."""
    best: dict[str, str] = {}
    for key in names:
        column = column_of(key)
        if column not in best or preference(key) < preference(best[column]):
            best[column] = key
    return {key: column for column, key in best.items()}
