"""Start runs of a batch script: each by sbatch, or one after another on this machine."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from configs.files import read_text
from configs.load import expect
from configs.schema import Command
from launch.script.environment import users_environment
from launch.slurm import client, executor
from launch.slurm.client import Refused
from launch.submit.local import start_cells
from launch.submit.run import Choices
from launch.submit.study_cells import roll_back
from runs.folder import ROOT, RunFolder
from runs.jobs import save_script, scripts_folder
from runs.study_folder import study_of

# Files of a run's folder `script/`: the flags of sbatch, which come before variables such as
# SBATCH_PARTITION, and the script that starts the run without sbatch.
FLAGS, START = "flags", "start"


def start_runs(runs: list[RunFolder], choices: Choices, *, umask: int) -> Iterator[str]:
    """Start runs, of one study if there are several; yield the ids of their jobs or process.

    If sbatch refuses one, raise `Refused`: those before it stay queued, the others have failed.
    """
    if choices.how == "local":
        yield from [_start(runs, umask=umask)] if runs else []
        return
    for number, run in enumerate(runs):
        try:
            yield _queue(run, umask=umask)
        except Refused:
            roll_back(runs[number:], folder=None)
            raise


def wrapper_of(run: RunFolder, script: Path) -> Path:
    """Return the path of what sbatch gets: its name is the default name of the job."""
    return run.path / "script" / "job" / script.name


def _queue(run: RunFolder, *, umask: int) -> str:
    config = expect(run.config(), Command, source=run.path)
    wrapper = wrapper_of(run, Path(str(config.script)))
    flags = shlex.split(read_text(run.path / "script" / FLAGS))
    answer = client.sbatch(
        [*flags, "--parsable", str(wrapper), *shlex.split(config.run)],
        folder=Path(str(config.folder)), environment=users_environment(), umask=umask,
    )  # fmt: skip
    job = answer.split(";")[0]
    save_script(run, job, read_text(wrapper, errors="replace"))
    return job


def _start(runs: list[RunFolder], *, umask: int) -> str:
    """Start a process that carries the runs out, and return its id."""
    study, environment = study_of(runs[0].path), users_environment()
    if study is not None:
        study.stop_file.unlink(missing_ok=True)
        names = [run.name for run in runs]
        pid = start_cells(study, names, "command", code=ROOT, environment=environment, umask=umask)
    else:
        run = runs[0]
        words = [str(run.path / "script" / START)]
        pid = executor.start_detached(
            words, scripts_folder(run), environment=environment, umask=umask
        )
    return str(pid)
