"""The one place that knows submitit: its sbatch text, its submission, its local executor.

A job is a shell command, so that none of submitit's pickles is written or read. The ways in that
this takes are private ones: submitit is pinned, and tests compare the text whole.
"""

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import ConfigError
from launch.slurm.client import Refused, misleading_variables
from launch.slurm.flags import Flags, fits_a_directive

if TYPE_CHECKING:
    from submitit import SlurmExecutor

# submitit gives up on what runs here after so long.
_YEAR_MIN = 366 * 24 * 60


@dataclass(frozen=True, kw_only=True)
class BatchScript:
    """A job: the flags of sbatch, the variables it needs, and the command that it becomes."""

    flags: Flags
    exports: dict[str, str]
    command: list[str]


def sbatch_text(script: BatchScript) -> str:
    """The batch script, whole."""
    assert all(fits_a_directive(str(value)) for value in script.flags.values()), script.flags
    text: str = _slurm_executor(Path("/"), script)._make_submission_file_text(_line(script), "")
    return text


def submit(script: BatchScript) -> str:
    """Queue the job; its id. `Refused` holds what sbatch says against it."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    # submitit takes % in the name of its folder for patterns, and leaves its own files there.
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        try:
            return str(_slurm_executor(Path(folder), script)._submit_command(_line(script)).job_id)
        except (FailedJobError, FailedSubmissionError) as error:
            raise Refused(f"sbatch refuses the job: {error}") from None
        except FileNotFoundError:
            raise ConfigError("no sbatch here; --local runs it on this machine") from None


def check_folder(folder: Path) -> None:
    """Refuse a folder whose name the local executor would change."""
    if any(tag in str(folder) for tag in ("%j", "%t", "%a", "%A")):
        raise ConfigError(f"{folder}: submitit takes % and a letter for a pattern; rename it")


def start_here(script: BatchScript, folder: Path) -> int:
    """Start the job on this machine, in the background; the pid of what watches over it.

    Its output goes to `<pid>_0_log.out` in `folder`. It outlives this process and its terminal.
    """
    from submitit import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_YEAR_MIN, stderr_to_stdout=True)
    exports = [f"{name}={value}" for name, value in (script.exports | _devices()).items()]
    hidden = [word for name in misleading_variables() for word in ("-u", name)]
    command = ["env", *hidden, *exports, *script.command]
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
    """Leave the terminal, and whoever waits for the end of this process's output."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


def _devices() -> dict[str, str]:
    """GPUs as this process sees them: submitit would hide them all."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen is None:
        seen = ",".join(str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))
    return {"CUDA_VISIBLE_DEVICES": seen}


def _line(script: BatchScript) -> str:
    return f"exec {shlex.join(script.command)}"


def _slurm_executor(folder: Path, script: BatchScript) -> "SlurmExecutor":
    """An executor that writes exactly the flags of the script."""
    from submitit import SlurmExecutor

    class Executor(SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 2  # the text can be had without Slurm

        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            hidden = [word for name in misleading_variables() for word in ("-u", name)]
            return ["env", *hidden, "sbatch", str(submission_file_path)]

    executor = Executor(folder, python=sys.executable)
    executor.update_parameters(
        use_srun=False,
        stderr_to_stdout=True,
        wckey=None,
        setup=[f"export {name}={shlex.quote(value)}" for name, value in script.exports.items()],
        # A name with an underscore takes the place of submitit's own flag of this name.
        additional_parameters={
            name if name == "open-mode" else name.replace("-", "_"): value
            for name, value in script.flags.items()
        },
    )
    return executor
