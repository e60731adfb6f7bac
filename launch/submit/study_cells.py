"""The folder of a study: create its runs from a plan and find those that still have to run."""

import glob
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import read_tree, resolve, to_tree
from configs.progress import counted
from configs.yaml12 import dump_yaml
from launch.plan.study import Plan, digest
from launch.slurm import client
from launch.status.state import RunStatus, run_status
from runs.attempt.pruning import is_wanted
from runs.folder import RunFolder, is_run
from runs.jobs import scripts_folder
from runs.records import RecordWriter
from runs.state.slurm_job import SlurmJob
from runs.study_folder import StudyFolder, StudyRow, is_study_folder
from runs.trust import check_own

NOTHING_LEFT = "nothing to run: no run is missing or failed"


def find_study(plan: Plan, logs: Path) -> StudyFolder | None:
    """Return the newest folder of the study that has a cell of the plan and contradicts none.

    A cell of the same name with another config keeps a folder from taking the others.
    """
    wanted = {row.cell: row.digest for row in plan.rows}
    for study in _studies_of(plan, logs):
        known = {row.cell: row.digest for row in study.rows()}
        shared = known.keys() & wanted.keys()
        is_same = shared and all(known[name] == wanted[name] for name in shared)
        if is_same and _has_its_configs(study, plan):
            return study
    return None


def _studies_of(plan: Plan, logs: Path) -> Iterator[StudyFolder]:
    """Yield our undamaged folders of studies with the name of this one, newest first."""
    for path in sorted(logs.glob(f"{glob.escape(plan.grid.name)}-*"), reverse=True):
        study = StudyFolder(path)
        try:
            if is_study_folder(path) and study.study() and study.rows():
                check_own(path)
                yield study
        except ConfigError as error:
            print(f"passes over {path}: {error}", file=sys.stderr)


def _has_its_configs(study: StudyFolder, plan: Plan) -> bool:
    """Return whether the cells of a plan that a folder has are ours and hold the plan's configs."""
    for row in plan.rows:
        cell = RunFolder(study.cell(row.cell))
        try:
            if not is_run(cell.path):
                continue
            check_own(cell.path)
            tree = read_tree(cell.config_file)
            if digest(resolve(tree, source=str(cell.config_file))) != row.digest:
                raise ConfigError(f"{cell.config_file}: not the config of {study.cells_file}")
        except (OSError, ValueError) as error:
            print(f"passes over {study.path}: {error}", file=sys.stderr)
            return False
    return True


def rows_with(plan: Plan, known: Sequence[StudyRow]) -> list[StudyRow]:
    """Return the known rows, followed by the plan's new ones in their order."""
    names = {row.cell for row in known}
    new = [row for row in plan.rows if row.cell not in names]
    after = max((row.order for row in known), default=-1) + 1
    rows = [
        row.model_copy(update={"index": index, "order": after + row.order})
        for index, row in enumerate(new, start=len(known))
    ]
    return [*known, *rows]


def make_folder(study: StudyFolder, plan: Plan, rows: Sequence[StudyRow]) -> None:
    """Write the study, its rows, and the folders of the runs that have none."""
    try:
        for folder in (study.path, study.jobs, study.cell("")):
            folder.mkdir(parents=True, exist_ok=True)
        for name, cell in plan.cells.items():
            path = study.cell(name)
            if not is_run(path):
                (path / "attempts").mkdir(parents=True, exist_ok=True)
                # Without fsync: a cell that is lost is made again.
                (path / "config.yaml").write_text(dump_yaml(to_tree(cell.config)), encoding="utf-8")
        replace_file(study.study_file, dump_yaml(to_tree(plan.grid.study)))
        # Last, because the rows make a folder a study's folder.
        study.write_rows(rows)
    except OSError as error:
        raise ConfigError(
            f"{study.path}: cannot be written: {error.strerror}; set LOGS to a writable folder"
        ) from None


def record_queued(run: RunFolder) -> None:
    """Record that a run waits for its job."""
    scripts_folder(run).mkdir(exist_ok=True)
    _record(run, "queued")


def _record(run: RunFolder, event: str, **fields: str) -> None:
    """Append an event to the attempt that follows, without fsync."""
    attempt = max(run.attempts(), default=0) + 1
    with closing(RecordWriter(run.path, attempt=attempt)) as writer:
        writer.write(event=event, **fields)


def run_statuses(study: StudyFolder, rows: Collection[StudyRow]) -> dict[int, RunStatus]:
    """Return the status of the runs of these rows by index, read from their folders alone."""
    return {
        row.index: run_status(RunFolder(study.cell(row.cell)))
        for row in counted(rows, f"reading the cells of {study.path}")
    }


def rows_to_run(study: StudyFolder, *, rerun: bool) -> list[StudyRow]:
    """Return the rows to submit: missing, lost, stopped and failed ones.

    `rerun` includes those that would end as before.
    """
    rows = study.rows()
    statuses = run_statuses(study, rows)
    live = _live_jobs(statuses.values())

    def is_left(row: StudyRow) -> bool:
        one = statuses[row.index]
        if one.state.is_open or (one.job in live and live[one.job].is_waiting):
            return one.job not in live
        return is_wanted(one.state, rerun=rerun)

    return [row for row in rows if is_left(row)]


def _live_jobs(runs: Collection[RunStatus]) -> dict[str, SlurmJob]:
    jobs = {one.job for one in runs if one.state.may_have_job and one.job is not None}
    found = client.query_jobs(sorted(jobs))
    return {job: one for job, one in found.items() if not one.has_ended}


def roll_back(runs: Iterable[RunFolder], *, folder: Path | None) -> None:
    """Undo the preparation of jobs that were not accepted: remove a new folder, or record it."""
    if folder:
        shutil.rmtree(folder)
        return
    for run in runs:
        _record(run, "failed", reason="config", message="the job was not accepted")
