"""ai-toolkit's `loss_log.db` (sqlite): tables `steps` (step, wall_time) and `metrics`."""

import sqlite3
from contextlib import closing
from pathlib import Path

from analysis.read.columns import from_rows
from analysis.read.run_log import RunLog
from configs.errors import Unreadable

MAGIC = b"SQLite format 3\0"


def read_database(path: Path, *, name: str) -> list[RunLog]:
    """The run in the database; none where it holds other tables. `line` is the row."""
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            times = dict(database.execute("SELECT step, wall_time FROM steps LIMIT 20000000"))
            found = database.execute(
                "SELECT rowid, step, key, value_real FROM metrics "
                "WHERE value_real IS NOT NULL LIMIT 20000000"
            ).fetchall()
    except sqlite3.OperationalError:
        return []
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # Of a damaged schema the message itself may be no text.
        raise Unreadable(f"{path}: a damaged database ({error})") from None
    rows = []
    for line, step, key, value in found:
        if all(type(number) in (int, float) for number in (step, value)):
            values = {"step": float(step), str(key): float(value)}
            if type(times.get(step)) in (int, float):
                values["time"] = float(times[step])
            rows.append((line, values))
    return from_rows(rows, path=path, name=name, kind="ai-toolkit database")
