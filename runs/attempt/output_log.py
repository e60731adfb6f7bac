"""Keep the output of a user's program with the time at which each piece arrived."""

import os
import time
from pathlib import Path


class OutputLog:
    """`output.log` of an attempt, and `arrivals.txt`: its length after each piece, and the time."""

    def __init__(self, attempt: Path) -> None:
        self.path = attempt / "output.log"
        self.error: OSError | None = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        paths = (self.path, attempt / "arrivals.txt")
        self._files = [os.open(path, flags, 0o666) for path in paths]

    def keep(self, piece: bytes) -> None:
        """Append a piece of output with its time, unless an earlier one could not be written."""
        log, arrivals = self._files
        try:
            if piece and self.error is None:
                os.write(log, piece)
                size = os.lseek(log, 0, os.SEEK_CUR)
                os.write(arrivals, f"{size} {time.time():.3f}\n".encode())
        except OSError as error:
            self.error = error
