"""The database through which ai-toolkit reports its state, and is asked to save and to leave.

ai-toolkit's user interface uses a sqlite database with a one-row table `Job`; each attempt has
one of its own. A trigger stores every change with its time, in the process that makes the change,
so no phase is missed between polls.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

# The row that AITK_JOB_ID names.
JOB_ID = "run"
_TIMEOUT_S = 30.0
_SCHEMA = """
CREATE TABLE Job (
  id TEXT PRIMARY KEY, status TEXT, info TEXT, step INTEGER, speed_string TEXT,
  stop INTEGER DEFAULT 0, return_to_queue INTEGER DEFAULT 0,
  save_now INTEGER DEFAULT 0, sample_now INTEGER DEFAULT 0
);
CREATE TABLE history (time REAL, status TEXT, info TEXT, step INTEGER, save_now INTEGER);
CREATE TRIGGER note AFTER UPDATE OF status, info, step, save_now ON Job BEGIN
  INSERT INTO history VALUES (
    (julianday('now') - 2440587.5) * 86400.0, NEW.status, NEW.info, NEW.step, NEW.save_now
  );
END;
"""


@dataclass(frozen=True, kw_only=True)
class JobUpdate:
    """The state of the job from `time` (seconds since 1970) on."""

    time: float
    status: str
    info: str
    step: int
    is_save_requested: bool


class JobTable:
    """The job table of one attempt, in a new database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        with closing(sqlite3.connect(path)) as database:
            database.executescript(_SCHEMA)
            database.execute(
                "INSERT INTO Job (id, status, info, step) VALUES (?, 'queued', '', 0)", (JOB_ID,)
            )
            database.commit()

    def new_updates(self) -> list[JobUpdate]:
        """Return the updates since the last call, oldest first."""
        with closing(self._connect()) as database:
            rows = database.execute(
                "SELECT rowid, time, status, info, step, save_now FROM history "
                "WHERE rowid > ? ORDER BY rowid",
                (self._seen,),
            ).fetchall()
        if rows:
            self._seen = rows[-1][0]
        return [
            JobUpdate(
                time=time,
                status=status or "",
                info=info or "",
                step=int(step or 0),
                is_save_requested=int(save_now) == 1,
            )
            for _, time, status, info, step, save_now in rows
        ]

    def request_save(self) -> None:
        """Ask it to save after the current step."""
        self._update("UPDATE Job SET save_now = 1 WHERE id = ?")

    def request_leave(self) -> None:
        """Ask it to leave without a save at its next check: after a step, an image, or a save."""
        self._update("UPDATE Job SET return_to_queue = 1 WHERE id = ?")

    def _update(self, command: str) -> None:
        with closing(self._connect()) as database:
            database.execute(command, (JOB_ID,))
            database.commit()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_TIMEOUT_S)
