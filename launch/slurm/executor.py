"""The only module that uses submitit: for the sbatch text, submission and local jobs.

A job is a shell command, so no submitit pickle is written or read. The code calls private methods
of submitit, which is therefore pinned; tests compare the whole text.
"""

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import ConfigError
from launch.slurm.client import Refused, conflicting_variables
from launch.slurm.flags import Flags, fits_a_directive

if TYPE_CHECKING:
    from submitit import SlurmExecutor

# submitit's local executor ends a job after its time limit; one year is long enough.
_YEAR_MIN = 366 * 24 * 60


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


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` for a folder whose name the local executor would expand."""
    if any(tag in str(folder) for tag in ("%j", "%t", "%a", "%A")):
        raise ConfigError(f"{folder}: submitit expands % followed by a letter; rename the folder")


def start_local(script: BatchScript, folder: Path) -> int:
    """Start the job in the background, here or in this allocation; return its supervisor's pid.

    Its output goes to `<pid>_0_log.out` in `folder`. It outlives this process and its terminal.
    """
    from submitit import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_YEAR_MIN, stderr_to_stdout=True)
    exports = [f"{name}={value}" for name, value in (script.exports | _visible_gpus()).items()]
    # In the session of an allocation (salloc) the job runs on the allocation's nodes.
    has_nodes = "SLURM_JOB_ID" in os.environ and os.environ.get("ENVIRONMENT") != "BATCH"
    variables = [] if has_nodes else conflicting_variables()
    hidden = [word for name in variables for word in ("-u", name)]
    # The site's variables are decided here: ACTIVATED would let env/site.sh decide again.
    command = ["env", "-u", "ACTIVATED", *hidden, *exports, *script.command]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _detach()
        pid = str(executor._submit_command(shlex.join(command)).job_id)
        os.write(writer, pid.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        started = answer.read()
    os.waitpid(child, 0)
    if not started:
        raise Refused(f"submitit could not start a process that writes to {folder}")
    return int(started)


def _detach() -> None:
    """Detach from the terminal and from readers that wait for this process's output to end."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


def _visible_gpus() -> dict[str, str]:
    """Export the GPUs that this process sees; submitit would hide all of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        visible = ",".join(str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))
    return {"CUDA_VISIBLE_DEVICES": visible}


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
