"""ai-toolkit's own file of losses, `loss_log.db`."""

import sqlite3
from contextlib import suppress
from pathlib import Path

from analysis.read.database import open_database
from analysis.read.formats.structured import logs_of
from analysis.read.run_log import RunLog

DATABASE = b"SQLite format 3\0"


def read_database(path: Path, *, name: str) -> list[RunLog]:
    """Return the run in a database with the tables `steps` (step, wall_time) and `metrics`.

    `line` is the row. A database with other tables has none.
    """
    with suppress(sqlite3.OperationalError), open_database(path, "steps", "metrics") as database:
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
