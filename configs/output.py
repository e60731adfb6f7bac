"""Standard output whose reader may leave before the end, as `head` does."""

import os
import sys
from collections.abc import Callable


def while_read(command: Callable[[], int]) -> int:
    """Carry out a command; its exit code, 1 where nobody was there to read it to the end."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
