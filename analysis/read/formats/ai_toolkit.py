"""ai-toolkit's own files: `loss_log.db`, and samples with their time and step in their names.

Samples are `<milliseconds since 1970>__<step, 9 digits>_<number>.jpg`.
"""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from analysis.read.database import open_database
from analysis.read.formats.mlflow_store import read_runs
from analysis.read.formats.structured import logs_of
from analysis.read.run_log import RunLog

DATABASE = b"SQLite format 3\0"
_SAMPLE = re.compile(r"(\d{13})__(\d{9})_(\d+)\.(?:jpe?g|png|webp)")


def read_database(path: Path, *, name: str, columns: Mapping[str, str]) -> list[RunLog]:
    """Return the run in a database with the tables `steps` (step, wall_time) and `metrics`.

    `line` is the row. A database of MLflow may have several runs, one with other tables has none.
    """
    with suppress(sqlite3.OperationalError):
        with open_database(path, "runs", "metrics", "params", "tags") as database:
            if database is not None:
                return read_runs(database, path, columns)
        with open_database(path, "steps", "metrics") as database:
            if database is not None:
                return _runs_of(database, path, name=name)
    return []


def _runs_of(database: sqlite3.Connection, path: Path, *, name: str) -> list[RunLog]:
    times = dict(database.execute("SELECT step, wall_time FROM steps LIMIT 20000000"))
    found = database.execute(
        "SELECT rowid, step, key, value_real FROM metrics "
        "WHERE value_real IS NOT NULL LIMIT 20000000"
    )
    rows = []
    for line, step, key, value in found:
        if all(type(number) in (int, float) for number in (step, value)):
            values = {"step": float(step), str(key): float(value)}
            if type(times.get(step)) in (int, float):
                values["time"] = float(times[step])
            rows.append((line, values))
    return logs_of(rows, path=path, name=name, kind="ai-toolkit database")


def is_sample(path: Path) -> bool:
    """Whether a file is named as a sample with its time and step."""
    return _SAMPLE.fullmatch(path.name) is not None


def read_samples(paths: Iterable[Path], *, folder: Path, name: str) -> list[RunLog]:
    """Return a run with the time of the first sample of each step; `line` counts files."""
    rows: dict[int, tuple[int, dict[str, float]]] = {}
    for number, path in enumerate(sorted(paths), start=1):
        if match := _SAMPLE.fullmatch(path.name):
            time, step = int(match[1]) / 1e3, int(match[2])
            rows.setdefault(step, (number, {"step": float(step), "time": time}))
    return logs_of(rows.values(), path=folder, name=name, kind="sample names")
