"""The folder of a study: its runs made from a plan, and which of them are still to be run."""

import glob
import json
import shutil
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path

from configs.attempt.pruning import is_out_of_memory, proof_of
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import read_tree, to_tree
from configs.run.folder import RunFolder, is_run
from configs.run.records import RecordWriter, state
from configs.run.study_folder import StudyFolder, StudyRow, is_study_folder
from configs.yaml12 import dump_yaml
from launch.slurm import client
from launch.slurm.client import Job
from launch.status.state import Standing, standing
from launch.submit.plan import Plan, PlannedRun, digest


def find_same(plan: Plan, logs: Path) -> StudyFolder | None:
    """The newest folder of exactly this study, whose cells' configs are these too."""
    wanted = {(run.name, digest(run.cell)) for run in plan.runs}
    told = to_tree(plan.grid.study)
    for path in sorted(logs.glob(f"{glob.escape(plan.grid.source.stem)}-*"), reverse=True):
        study = StudyFolder(path)
        if not is_study_folder(path) or read_tree(study.study_file) != told:
            continue
        if {(row.cell, row.digest) for row in study.rows()} == wanted:
            return study
    return None


def rows_with(plan: Plan, known: Sequence[StudyRow], *, source: str) -> list[StudyRow]:
    """The rows of a folder that is to hold the plan's runs too.

    Those of an array follow one another; those that are dropped are last. `ConfigError` where a
    cell is another config than the one of its name that is there.
    """
    there = {row.cell: row for row in known}
    for run in plan.runs:
        if run.name in there and there[run.name].digest != digest(run.cell):
            raise ConfigError(
                f"{source}: its cell {run.name} has another config; leave --into out for a new "
                "folder, or give the level another label"
            )
    fresh = [run for run in plan.runs if run.name not in there]
    fresh.sort(key=lambda run: (run.dropped is not None, run.shape, run.order))
    after = max((row.order for row in known), default=-1) + 1
    return [
        *known,
        *(
            _row(run, index=len(known) + place, order=after + run.order)
            for place, run in enumerate(fresh)
        ),
    ]


def _row(run: PlannedRun, *, index: int, order: int) -> StudyRow:
    return StudyRow(
        index=index,
        order=order,
        cell=run.name,
        repeat=run.repeat,
        shape=run.shape,
        digest=digest(run.cell),
        levels=run.cell.levels,
    )


def make_folder(study: StudyFolder, plan: Plan, rows: Sequence[StudyRow]) -> None:
    """Write the study, its rows, and the folder of every run that has none yet."""
    try:
        for folder in (study.path, study.jobs, study.cell("")):
            folder.mkdir(parents=True, exist_ok=True)
        for run in plan.runs:
            if not is_run(study.cell(run.name)):
                _make_cell(study.cell(run.name), run)
        replace_file(study.study_file, dump_yaml(to_tree(plan.grid.study)))
        # Last: it makes the folder a study's.
        study.write_rows(rows)
    except OSError as error:
        raise ConfigError(
            f"{study.path}: cannot be written: {error.strerror}; set LOGS to a folder that can be"
        ) from None


def _make_cell(path: Path, run: PlannedRun) -> None:
    (path / "attempts").mkdir(parents=True, exist_ok=True)
    # Not forced to disk one by one: a lost one is found missing, and made again.
    groups = to_tree(run.cell.config).items()
    text = "".join(_dumped(json.dumps({name: group})) for name, group in groups)
    (path / "config.yaml").write_text(text, encoding="utf-8")
    if run.dropped is not None:
        record(RunFolder(path), "skipped", reason="forecast", message=run.dropped)


@lru_cache(maxsize=256)
def _dumped(group: str) -> str:
    """YAML of one key of a config, given as JSON: most cells of a study share most of them."""
    return dump_yaml(json.loads(group))


def record(run: RunFolder, event: str, **fields: str) -> None:
    """Append an event of the launcher's, which is of the attempt that it comes before."""
    writer = RecordWriter(run.path, attempt=max(run.attempts(), default=0) + 1)
    try:
        writer.write(event=event, **fields)
    finally:
        writer.close()


def standings(study: StudyFolder, rows: Collection[StudyRow]) -> dict[int, Standing]:
    """How the runs of these rows stand, by index; their folders alone are read."""
    return {row.index: standing(RunFolder(study.cell(row.cell))) for row in rows}


def live_jobs(told: Collection[Standing]) -> dict[str, Job]:
    """The jobs of runs that Slurm has not ended; it is asked once."""
    ids = {one.job for one in told if one.is_open and one.job is not None}
    known = client.jobs(sorted(ids))
    return {job: one for job, one in known.items() if not one.has_ended}


def to_run(study: StudyFolder, *, again: bool, dropped: bool) -> list[StudyRow]:
    """The rows to submit: missing, lost, stopped and failed.

    What ran out of memory would do so again, and what that ruled out stays so, until the proof
    itself is run: `again` takes them too. `dropped` takes those that the forecast skipped.
    """
    rows = study.rows()
    told = standings(study, rows)
    live = live_jobs(told.values())
    return [row for row in rows if _is_wanted(told[row.index], live, again=again, dropped=dropped)]


def _is_wanted(one: Standing, live: dict[str, Job], *, again: bool, dropped: bool) -> bool:
    if one.event == "done":
        return False
    if one.is_open:
        return one.job not in live
    if one.event == "skipped":
        proof = proof_of(one.run)
        return dropped if proof is None else again or not _stands(proof)
    return again or not is_out_of_memory(one.run, one.last)


def _stands(proof: Path) -> bool:
    """Whether a cell that ruled others out has still run out of memory."""
    run = RunFolder(proof)
    return is_out_of_memory(run, state(run.records()))


def withdraw(study: StudyFolder, rows: Sequence[StudyRow], *, is_new: bool) -> None:
    """Undo what was prepared for jobs that were not taken."""
    if is_new:
        shutil.rmtree(study.path)
        return
    for row in rows:
        run = RunFolder(study.cell(row.cell))
        record(run, "failed", reason="config", message="the job was not taken")
