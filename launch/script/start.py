"""Start runs of a batch script that have their folders: by sbatch, or here one after another."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.files import read_text
from configs.load import expect
from configs.schema import Command
from configs.table import Row
from launch.plan.result import CheckResult
from launch.script.environment import users_environment
from launch.slurm import client, executor
from launch.submit.local import check_no_job, check_no_process, start_cells
from launch.submit.request import own_study
from launch.submit.study_cells import NOTHING_LEFT, record_queued, rows_to_run
from launch.submit.submission import Choices, bill
from runs.folder import ROOT, RunFolder
from runs.jobs import save_script, scripts_folder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, is_study_folder
from runs.trust import check_own

# Files of a run's folder `script/`: the flags of sbatch, which come before variables such as
# SBATCH_PARTITION, and the script that starts the run without sbatch.
FLAGS, START = "flags", "start"


@dataclass(frozen=True, kw_only=True)
class ScriptRuns:
    """Runs of a batch script, one or those of a study; `umask` is the user's."""

    choices: Choices
    folder: Path
    is_study: bool
    umask: int
    title = "runs"

    def check_idle(self) -> None:
        """Raise `Refused` if a process here has the runs."""
        if self.is_study:
            check_no_process(StudyFolder(self.folder))

    def queue(self, run: RunFolder, jobs: Sequence[str]) -> str:
        """Queue the wrapper of a run as its user would, in the folder where it was submitted."""
        config = _config(run)
        wrapper = wrapper_of(run, Path(str(config.script)))
        answer = client.sbatch(
            _words(run), folder=Path(str(config.folder)), environment=users_environment(),
            umask=self.umask,
        )  # fmt: skip
        job = answer.split(";")[0]
        save_script(run, job, read_text(wrapper, errors="replace"))
        return job

    def start(self, runs: Sequence[RunFolder]) -> int:
        """Start a process here that carries the runs out."""
        environment = users_environment()
        if self.is_study:
            study = StudyFolder(self.folder)
            study.stop_file.unlink(missing_ok=True)
            names = [run.name for run in runs]
            return start_cells(
                study, names, "command", code=ROOT, environment=environment, umask=self.umask
            )
        words = [str(runs[0].path / "script" / START)]
        folder = scripts_folder(runs[0])
        return executor.start_detached(words, folder, environment=environment, umask=self.umask)

    def outlook(self) -> str:
        """Return that nothing is known of it."""
        return "how long it takes is unknown"

    def follow_up(self, jobs: Sequence[str]) -> list[str]:
        """Queue nothing more, and return no remarks."""
        return []


@dataclass(frozen=True, kw_only=True)
class ScriptRerun(ScriptRuns):
    """A run of a batch script, or the runs of a study that are missing or failed, once more."""

    left: list[RunFolder]
    is_new = False

    def finished(self) -> str:
        """Return why nothing is left to run; empty if something is."""
        done = NOTHING_LEFT if self.is_study else "already done"
        return "" if self.left else f"{self.folder}: {done}"

    def check_idle(self) -> None:
        """Raise `Refused` if the runs go on already."""
        super().check_idle()
        for run in () if self.is_study else self.left:
            check_no_job(run)

    def checks(self) -> Iterator[CheckResult]:
        """Yield nothing: the script was checked when it was submitted."""
        yield from ()

    def bill(self) -> str:
        """Return the number of runs and the most that they cost."""
        return bill(len(self.left), sum(_config(run).resources.gpu_hours for run in self.left))

    def rows(self) -> list[Row]:
        """Return no table."""
        return []

    def scripts(self) -> list[str]:
        """Return the commands of sbatch."""
        return [f"sbatch {shlex.join(_words(run))}" for run in self.left]

    def prepare(self) -> list[RunFolder]:
        """Record that the runs are queued."""
        for run in self.left:
            run.stop_file.unlink(missing_ok=True)
            record_queued(run)
        return self.left


def script_rerun(path: Path, choices: Choices, *, umask: int, rerun: bool) -> ScriptRerun:
    """Return what is left of a run or a study; `rerun` includes runs that would end as before."""
    folder = path.resolve()
    if is_study_folder(path):
        study = own_study(path)
        left = [RunFolder(study.cell(row.cell)) for row in rows_to_run(study, rerun=rerun)]
    else:
        check_own(path)
        left = [] if run_state(RunFolder(folder)).is_done else [RunFolder(folder)]
    return ScriptRerun(
        choices=choices, folder=folder, is_study=is_study_folder(path), left=left, umask=umask
    )


def wrapper_of(run: RunFolder, script: Path) -> Path:
    """Return the path of what sbatch gets: its name is the default name of the job."""
    return run.path / "script" / "job" / script.name


def _config(run: RunFolder) -> Command:
    return expect(run.config(), Command, source=run.path)


def _words(run: RunFolder) -> list[str]:
    """Return the arguments of sbatch."""
    config, flags = _config(run), shlex.split(read_text(run.path / "script" / FLAGS))
    wrapper = wrapper_of(run, Path(str(config.script)))
    return [*flags, "--parsable", str(wrapper), *shlex.split(config.run)]
