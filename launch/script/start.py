"""Submit runs of a batch script, or submit them again: by sbatch, or here one after another."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from configs.files import read_text
from configs.load import expect
from configs.schema import Command
from launch.script.environment import users_environment
from launch.script.submission import FLAGS, START, ScriptSubmission, wrapper_of
from launch.slurm import client, executor
from launch.slurm.client import Refused
from launch.submit.local import check_no_process, start_cells
from launch.submit.refusals import enforce
from launch.submit.run import Choices, check_no_job, print_remarks
from launch.submit.study_cells import record, roll_back, rows_to_run
from runs.folder import ROOT, RunFolder
from runs.jobs import save_script, scripts_folder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, is_study_folder, study_of
from runs.trust import check_own


def submit_script(submission: ScriptSubmission) -> int:
    """Queue the runs, or start them here; if sbatch refuses one, those before it stay queued."""
    request = submission.request
    is_local = request.choices.how == "local"
    remarks = enforce(submission.checks(), force=request.choices.force)
    remarks += submission.plan.remarks if submission.plan else []
    print(submission.bill(), file=sys.stderr)
    runs = submission.prepare()
    ids: list[str] = []
    try:
        ids += _start_runs(runs, request.choices, umask=request.umask)
    except Refused:
        if not ids:
            shutil.rmtree(submission.folder)
        raise
    is_study = submission.plan is not None
    print(f"{'study' if is_study else 'run'}: {submission.folder}")
    kind = "process" if is_local else "jobs" if is_study else "job"
    print(f"{kind}: {', '.join(ids)}")
    print_remarks(remarks, follow="status" if is_study else "tail", path=submission.folder)
    return 0


def submit_again(path: Path, choices: Choices, *, umask: int, rerun: bool) -> int:
    """Submit a run, or the runs of a study that are missing or failed."""
    check_own(path)
    if is_study_folder(path):
        study = StudyFolder(path.resolve())
        check_no_process(study)
        runs = [RunFolder(study.cell(row.cell)) for row in rows_to_run(study, rerun=rerun)]
    else:
        runs = [RunFolder(path.resolve())]
        if run_state(runs[0]).is_done:
            print(f"{path}: already done", file=sys.stderr)
            return 0
        check_no_job(runs[0])
    if not runs:
        print(f"{path}: nothing to run: no run is missing or failed", file=sys.stderr)
    for run in runs:
        check_own(run.path)
        run.stop_file.unlink(missing_ok=True)
        record(run, "queued")
    kind = "process" if choices.how == "local" else "job"
    for one in _start_runs(runs, choices, umask=umask):
        print(f"{kind}: {one}")
    return 0


def _start_runs(runs: list[RunFolder], choices: Choices, *, umask: int) -> Iterator[str]:
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
