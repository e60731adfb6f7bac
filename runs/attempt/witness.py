"""Tell whether a signal to this process went to every process of its job."""

import os
import signal
import time

from runs.attempt.parent import end_with_parent

# The signals that a batch script may handle and this process passes on to it.
HANDLED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM
)  # fmt: skip


class Witness:
    """A process that a signal to all processes of a job ends.

    Some plugins of Slurm send TERM to every process of a job, others to the batch script alone.
    In the first case the script has got it already, and a second one would run its trap twice.
    """

    def __init__(self) -> None:
        self._pid = self._begin()

    def _begin(self) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        os.setpgid(0, 0)
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        os.closerange(0, 3)
        end_with_parent(parent)
        while True:
            signal.pause()

    def has_seen(self, number: int) -> bool:
        """Return whether the signal ended this process, too; then begin another one."""
        for _ in range(10):
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._pid = self._begin()
                return os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
            time.sleep(0.01)
        return False
