"""The table through which ai-toolkit tells what it does and is told to save and to leave.

It is a sqlite database of ours with the one-row table `Job` of its user interface. A trigger
notes every change with the time, in the process that makes it: no phase is missed between polls.
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
class Change:
    """What the table said from `time` (seconds since 1970) on."""

    time: float
    status: str
    info: str
    step: int
    is_save_asked: bool


class JobTable:
    """The table of one attempt, in a new database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0
        with closing(sqlite3.connect(path)) as database:
            database.executescript(_SCHEMA)
            database.execute(
                "INSERT INTO Job (id, status, info, step) VALUES (?, 'queued', '', 0)", (JOB_ID,)
            )
            database.commit()

    def changes(self) -> list[Change]:
        """What changed since this was last asked, oldest first."""
        with closing(self._connect()) as database:
            rows = database.execute(
                "SELECT rowid, time, status, info, step, save_now FROM history "
                "WHERE rowid > ? ORDER BY rowid",
                (self._seen,),
            ).fetchall()
        if rows:
            self._seen = rows[-1][0]
        return [
            Change(
                time=time,
                status=status or "",
                info=info or "",
                step=int(step or 0),
                is_save_asked=int(save_now) == 1,
            )
            for _, time, status, info, step, save_now in rows
        ]

    def ask_to_save(self) -> None:
        """Let it save after the step that is under way."""
        self._tell("UPDATE Job SET save_now = 1 WHERE id = ?")

    def ask_to_leave(self) -> None:
        """Let it leave, without a save, where it next looks: after a step, an image, a save."""
        self._tell("UPDATE Job SET return_to_queue = 1 WHERE id = ?")

    def _tell(self, command: str) -> None:
        with closing(self._connect()) as database:
            database.execute(command, (JOB_ID,))
            database.commit()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_TIMEOUT_S)
