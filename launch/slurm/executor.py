"""The text and the submission of batch scripts, by submitit, and jobs on this machine without it.

A job is a shell command, so no submitit pickle is written or read. The code calls private methods
of submitit, which is therefore pinned; tests compare the whole text.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import ConfigError
from launch.slurm.client import Refused, conflicting_variables
from launch.slurm.flags import Flags, fits_a_directive

if TYPE_CHECKING:
    from submitit import SlurmExecutor

# Execute a command in a session of its own, print its process id, and leave it running.
_DETACHED = """\
setsid bash -c 'exec "$@" >"$0/$$.out" 2>&1' "$@" </dev/null >/dev/null 2>&1 &
echo $!"""


@dataclass(frozen=True, kw_only=True)
class BatchScript:
    """A job: the flags of sbatch, the variables to export, a check, and the command to execute.

    `check` is a line of shell that ends the job if its code was changed.
    """

    flags: Flags
    exports: dict[str, str]
    command: list[str]
    check: str = ""


def sbatch_text(script: BatchScript) -> str:
    """Return the complete batch script."""
    assert all(fits_a_directive(str(value)) for value in script.flags.values()), script.flags
    text: str = _slurm_executor(Path("/"), script)._make_submission_file_text(_line(script), "")
    return text


def submit(script: BatchScript) -> str:
    """Queue the job and return its id; raise `Refused` with the message of sbatch."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # submitit expands % in the name of its folder and leaves its own files there.
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        try:
            return str(_slurm_executor(Path(folder), script)._submit_command(_line(script)).job_id)
        except (FailedJobError, FailedSubmissionError) as error:
            raise Refused(f"sbatch refuses the job: {error}") from None
        except FileNotFoundError:
            raise ConfigError("sbatch not found; --local runs on this machine") from None


def local_environment(exports: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job that runs here, or in this allocation."""
    # In the session of an allocation (salloc) the job runs on the allocation's nodes.
    has_nodes = "SLURM_JOB_ID" in os.environ and os.environ.get("ENVIRONMENT") != "BATCH"
    # The site's variables are decided here: ACTIVATED would let env/site.sh decide again.
    hidden = ["ACTIVATED", *([] if has_nodes else conflicting_variables())]
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | dict(exports)


def start_detached(
    command: list[str], folder: Path, *, environment: Mapping[str, str], umask: int = -1
) -> int:
    """Start a command in a session of its own, and return its process id.

    Its output goes to `<pid>.out` in `folder`. It outlives this process and its terminal.
    """
    words = ["bash", "-c", _DETACHED, "bash", str(folder), *command]
    answer = subprocess.run(words, env=environment, umask=umask, stdout=subprocess.PIPE, check=True)
    return int(answer.stdout)


def _line(script: BatchScript) -> str:
    return f"exec {shlex.join(script.command)}"


def _slurm_executor(folder: Path, script: BatchScript) -> "SlurmExecutor":
    """Return an executor that writes exactly the flags of the script."""
    from submitit import SlurmExecutor

    class Executor(SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 2  # also without Slurm, to write the text

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            hidden = [word for name in conflicting_variables() for word in ("-u", name)]
            return ["env", *hidden, "sbatch", str(submission_file_path)]

    executor = Executor(folder, python=sys.executable)
    executor.update_parameters(
        use_srun=False,
        stderr_to_stdout=True,
        wckey=None,
        setup=[
            *(f"export {name}={shlex.quote(value)}" for name, value in script.exports.items()),
            *filter(None, [script.check]),
        ],
        # A name with an underscore replaces submitit's own flag of that name.
        additional_parameters={
            name if name == "open-mode" else name.replace("-", "_"): value
            for name, value in script.flags.items()
        },
    )
    return executor
