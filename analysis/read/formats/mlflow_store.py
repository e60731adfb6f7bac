"""Runs of MLflow: in its database, or in folders `mlruns/EXPERIMENT/RUN/`.

A metric has the step and the time that it was logged with; metrics of `system/`, whose steps
are counted apart, are left out.
"""

import ast
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from analysis.read.formats.structured import as_numbers, logs_of
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import preferred
from configs.files import read_lines, read_text

_RUNS = "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time"
_TEXTS = (
    "SELECT run_uuid, key, value FROM params UNION ALL "
    "SELECT run_uuid, key, value FROM tags WHERE key = 'mlflow.source.git.commit'"
)
_METRICS = (
    "SELECT run_uuid, rowid, key, CASE is_nan WHEN 0 THEN value ELSE 9e999 END, timestamp, step "
    "FROM metrics WHERE key NOT LIKE 'system/%' ORDER BY run_uuid LIMIT 20000000"
)


def read_runs(database: sqlite3.Connection, path: Path, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the runs in a database, in the order of their starts; `line` is a row of `metrics`.

    Deleted runs are left out. Runs of the same name have the start of their id after it.
    """
    runs = dict(database.execute(_RUNS).fetchall())
    counts, logs = Counter(runs.values()), dict[str, list[RunLog]]()
    config: dict[str, dict[str, Any]] = defaultdict(dict)
    for run, key, text in database.execute(_TEXTS):
        config[run][str(key)] = _value(str(text))
    for run, points in groupby(database.execute(_METRICS), key=itemgetter(0)):
        own, rows = runs.get(run), _rows(point[1:] for point in points)
        name = str(own) if counts[own] == 1 else f"{own}-{str(run)[:8]}"
        found = logs_of(rows, path=path, name=name, kind="MLflow", columns=columns)
        logs[run] = [replace(log, config=config.get(run)) for log in found]
    return [log for run in runs for log in logs.get(run, [])]


def read_folder(meta: Path, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the run of a `meta.yaml`, none if it is deleted; `line` is in the file of its loss."""
    told = dict(re.findall(r"(?m)^(\w+): *(.*?) *$", read_text(meta, errors="replace")))
    if told.get("lifecycle_stage") == "deleted":
        return []
    name = told.get("run_name", "").strip("'\"") or meta.parent.name
    files = _files(meta.parent / "metrics")
    loss = columns.get("loss") or preferred(files).get("loss", "")
    tags = _files(meta.parent / "tags").items()
    texts = _files(meta.parent / "params") | {
        k: v for k, v in tags if k == "mlflow.source.git.commit"
    }
    config = {key: _value(read_text(file, errors="replace")) for key, file in texts.items()}
    rows = _rows(_points(sorted(files.items(), key=lambda item: item[0] != loss)))
    found = logs_of(rows, path=meta, name=name, kind="MLflow", columns=columns)
    return [replace(log, config=config or None, source=files.get(loss)) for log in found]


def _rows(points: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield a row for the points of a time and a step, with the line of the first of them.

    A point is a line, a metric, its value, milliseconds and a step.
    """
    rows: dict[tuple[float, float], tuple[int, dict[str, Any]]] = {}
    for line, key, *numbers in points:
        if all(type(number) in (int, float) for number in numbers):
            value, time_ms, step = numbers
            rows.setdefault((time_ms, step), (line, {}))[1][str(key)] = value
    for (time_ms, step), (line, values) in sorted(rows.items(), key=itemgetter(0)):
        yield line, as_numbers(values | {"step": step, "_timestamp": time_ms / 1e3})


def _points(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[Any, ...]]:
    """Yield the points in files of `milliseconds value step`; lines that are cut are left out."""
    for key, path in files:
        for line, text in enumerate(read_lines(path), start=1):
            with suppress(ValueError):
                time_ms, value, step = map(float, text.split()[: 3 * text.endswith("\n")])
                yield line, key, value, time_ms, step


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder, but no links, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path for name, path in names.items() if not name.startswith("system/")}


def _value(text: str) -> Any:
    """Return the value of a parameter, of which MLflow keeps what Python prints."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError, SyntaxWarning):
        return ast.literal_eval(text)
    return text
