"""Submit runs of a batch script again: one run, or those of a study that are left."""

import sys
from pathlib import Path

from launch.script.start import start_runs
from launch.submit.local import check_no_process
from launch.submit.run import Choices, check_no_job
from launch.submit.study_cells import record, rows_to_run
from runs.folder import RunFolder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, is_study_folder
from runs.trust import check_own


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
    for one in start_runs(runs, choices, umask=umask):
        print(f"{kind}: {one}")
    return 0
