"""Open an SQLite file that anybody may have made: plain tables, bounded work, nothing written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from configs.errors import Unreadable
from configs.files import open_regular

MOST_BYTES, LONGEST_VALUE = 2**32, 2**20
# Steps of SQLite's machine: some for each byte, and again as many as a small file may need.
_STEPS_AT_ONCE, _STEPS_PER_BYTE, _LEAST_STEPS = 100_000, 30, 10**7
_COMPUTED = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden > 0"
# A view may have rows without end, and a virtual table runs the code of a module.
_STORED = "SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master"


@contextmanager
def open_database(path: Path, *tables: str) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection that reads the tables, or None if the file lacks one of them.

    Raise `Unreadable` if one is computed rather than stored, if the database is damaged, or if a
    query does more than a file of this size can need; `OperationalError` for an unknown column.
    """
    with open_regular(path, most=MOST_BYTES) as file:
        size = file.seek(0, 2)
    steps = count(_STEPS_AT_ONCE, _STEPS_AT_ONCE)
    most = _STEPS_PER_BYTE * size + _LEAST_STEPS
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            database.set_progress_handler(lambda: next(steps) > most, _STEPS_AT_ONCE)
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            stored = dict(database.execute(_STORED))
            for table in tables:
                if not stored.get(table, True) or any(*database.execute(_COMPUTED, (table,))):
                    raise Unreadable(f"{path}: {table} is computed, not a table of stored rows")
            yield database if set(tables) <= stored.keys() else None
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise
        raise Unreadable(f"{path}: takes more work than a file of its size can need") from None
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        # The message on a damaged schema may itself be no text.
        raise Unreadable(f"{path}: a damaged database ({error})") from None
