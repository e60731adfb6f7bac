"""The text and the submission of batch scripts, and jobs on this machine without Slurm."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.slurm.client import conflicting_variables, submit_text
from launch.slurm.flags import Flags, fits_a_directive

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
    directives = [
        f"#SBATCH --{name}" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}"
        for name, value in sorted(script.flags.items())
    ]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in script.exports.items()]
    lines = [*exports, *filter(None, [script.check]), f"exec {shlex.join(script.command)}"]
    return "\n".join(["#!/bin/bash", *directives, "", *lines, ""])


def submit(script: BatchScript) -> str:
    """Queue the job and return its id; raise `Refused` with the message of sbatch."""
    return submit_text(sbatch_text(script))


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
