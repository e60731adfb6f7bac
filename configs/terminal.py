"""Standard output: text that is safe on a terminal, and readers that leave early (`head`)."""

import os
import sys
from collections.abc import Callable


def printable(text: str, *, keep: str = "") -> str:
    """Escape every character that a terminal could act on (ESC, bidi marks, ...) but for `keep`.

    Names of folders and lines of logs may hold any character.
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def while_read(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, or 1 if the reader of its output left early."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer would raise again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
