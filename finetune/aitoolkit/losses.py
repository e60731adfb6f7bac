"""Reads ai-toolkit's `loss_log.db` while it is being written: the loss of each step."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_LOSS, _RATE = "loss/loss", "learning_rate"


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One optimizer step, counted from 1; `loss` is None where it ran out of memory."""

    step: int
    loss: float | None
    lr: float | None


class LossLog:
    """The steps that an attempt has logged. Theirs count from 0; the first is never logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest = -1

    def new(self) -> list[Logged]:
        """Steps logged since this was last asked, in order; none while there is no log."""
        if not self._path.is_file():
            return []
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as database:
                rows = database.execute(
                    "SELECT steps.step, metrics.key, metrics.value_real FROM steps "
                    "LEFT JOIN metrics ON metrics.step = steps.step "
                    "WHERE steps.step > ? ORDER BY steps.step",
                    (self._newest,),
                ).fetchall()
        except sqlite3.OperationalError:
            # Its tables are made a moment after the file, and a writer may hold it just now.
            return []
        found: dict[int, dict[str, float]] = {}
        for step, name, value in rows:
            found.setdefault(int(step), {})[str(name)] = value
        self._newest = max(found, default=self._newest)
        return [
            Logged(step=step + 1, loss=values.get(_LOSS), lr=values.get(_RATE))
            for step, values in sorted(found.items())
        ]
