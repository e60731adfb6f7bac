"""Let a process end with its parent, however that ends: no rank or program outlives its job.

    python -m runs.attempt.parent SIGNAL PID COMMAND [ARGUMENT ...]

executes a command to which the kernel sends SIGNAL when its parent, the process PID, has ended.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal when its parent, the process `parent`, ends or has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[2]), signal.Signals[f"SIG{sys.argv[1]}"])
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606
