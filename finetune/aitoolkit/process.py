"""ai-toolkit as a process of its own, which no signal but ours ends."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

from configs.checks.aitoolkit_home import Home
from finetune.aitoolkit.home import environment
from finetune.aitoolkit.job_db import JOB_ID

_LAST_WORDS = 20_000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_LIBC = ctypes.CDLL(None)


class Process:
    """One start of ai-toolkit with `config`, its output appended to the file `output`."""

    def __init__(self, home: Home, config: Path, *, output: Path) -> None:
        self._output = output
        with output.open("ab") as file:
            # Where it stands its own imports are found, and nothing of ours.
            self._child = subprocess.Popen(
                [str(home.python), "run.py", str(config)],
                cwd=home.folder,
                env=environment() | {"AITK_JOB_ID": JOB_ID},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_prepare,
            )

    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._child.poll()

    def kill(self) -> None:
        """End it and its workers at once."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def last_words(self) -> str:
        """The end of its output."""
        with self._output.open("rb") as file:
            file.seek(max(0, self._output.stat().st_size - _LAST_WORDS))
            return file.read().decode("utf-8", "replace")


def _prepare() -> None:
    """Run in the child: the signals that Slurm sends to all processes would kill it unsaved."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
