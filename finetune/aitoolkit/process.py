"""ai-toolkit as a process: its environment, versions, signals, output, and why it failed."""

import os
import re
import signal
import subprocess
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

from configs.checks.aitoolkit_source import Home
from configs.disk import read_end
from finetune.aitoolkit.job_db import JOB_ID
from runs.attempt.parent import end_with_parent
from runs.state.fold import reason_of_exit
from train.engine.distributed import TORCHRUN_VARIABLES
from train.engine.failure import RunFailure

# PYTHONPATH and the like would import our modules in place of its own; the variables of torchrun
# would make its accelerate wait for peers; with HF_HUB_OFFLINE it cannot load Flux schnell even
# from local files.
_REMOVED = frozenset(
    (
        *TORCHRUN_VARIABLES,
        "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHOME", "VIRTUAL_ENV", "HF_HUB_OFFLINE", "SEED",
    )
)  # fmt: skip
_PACKAGES = (
    "torch", "diffusers", "transformers", "peft", "accelerate", "bitsandbytes", "optimum-quanto",
    "torchao", "safetensors",
)  # fmt: skip
# The reasons that the output of ai-toolkit can show.
_REASONS = ("oom", "host_oom", "disk", "node", "nan", "data")
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|Error running job: .*)$", re.M)


class Process:
    """One run of ai-toolkit with `config`, its output appended to `output`; killed on exit."""

    def __init__(self, home: Home, config: Path, *, output: Path) -> None:
        self._output = output
        with output.open("ab") as file:
            # The working directory lets it import its own modules, and none of ours.
            self._child = subprocess.Popen(
                [str(home.python), "run.py", str(config)],
                cwd=home.folder,
                env=_environment() | {"AITK_JOB_ID": JOB_ID},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_prepare, os.getpid()),
            )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def status(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        return self._child.poll()

    def kill(self) -> None:
        """Kill it and its workers, if it still runs."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def output_tail(self) -> str:
        """Return the end of its output."""
        return read_end(self._output)


def _prepare(parent: int) -> None:
    """Ignore, in the child, the signals that Slurm sends to all: it would end before it saves."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(parent)


def failure(status: int, *, info: str, output: str) -> RunFailure:
    """Return the failure for an exit `status`, the last `info` of the job table, and the output."""
    errors = _ERROR.findall(output)
    # The table has only the text of an exception; the traceback also ends with its type.
    if status < 0:
        return RunFailure("killed", f"ai-toolkit was killed by signal {-status}")
    message = (errors[-1] if errors else info) or f"it exited with status {status}"
    shown = "\n".join([info, message, *errors])
    return RunFailure(reason_of_exit(status, shown, among=_REASONS), f"ai-toolkit: {message}")


def versions(home: Home) -> dict[str, str]:
    """Return the git commit of ai-toolkit, if it is known, and the versions of its packages."""
    places = [str(place) for place in home.python.parents[1].glob("lib/python*/site-packages")]
    packages = {each.name: each.version for each in distributions(path=places)}
    found = {name: packages[name] for name in _PACKAGES if name in packages}
    # Without its own .git, git would report the commit of a checkout around it.
    if (home.folder / ".git").exists():
        git = ["git", "-C", str(home.folder), "rev-parse", "--short=10", "HEAD"]
        done = subprocess.run(git, capture_output=True, text=True, check=False)
        found["ai-toolkit"] = done.stdout.strip()
    return found


def _environment() -> dict[str, str]:
    """Return this environment without the variables that would mislead ai-toolkit."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _REMOVED and not name.startswith("TORCHELASTIC_")
    }
    return kept | {"PYTHONUNBUFFERED": "1"}
