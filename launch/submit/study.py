"""Submit a study, or its missing runs: an array per resource shape, then the report."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import load_grid
from configs.schema import Study
from configs.schema.training import Resources
from configs.terminal import plural
from launch.plan.result import CheckResult, checked, passed
from launch.plan.storage import study_room
from launch.plan.study import Plan, make_plan, overrides_of
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags
from launch.submit.local import check_no_process, list_cells
from launch.submit.refusals import confirm, enforce
from launch.submit.run import Choices, print_remarks
from launch.submit.script import (
    REPORT,
    Array,
    RunRequest,
    array_script,
    make_arrays,
    report_script,
)
from launch.submit.site import Site, check_logs_name, check_site, read_site
from launch.submit.study_cells import (
    find_study,
    make_folder,
    record,
    roll_back,
    rows_to_run,
    rows_with,
)
from runs import snapshot
from runs.folder import ROOT, RunFolder, is_run, new_id
from runs.jobs import save_array
from runs.study_folder import StudyFolder, StudyRow, is_study_folder
from runs.trust import check_own

ArrayScript = tuple[Array, BatchScript]


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A request to submit a study.

    `source` is a study file, a config with several values in `overrides`, or a study's folder.
    `rerun` includes the runs that ran out of memory. `for_shell` prints the results as shell
    assignments.
    """

    source: Path
    overrides: list[str]
    flags: Flags
    choices: Choices
    rerun: bool = False
    with_forecast: bool = True
    for_shell: bool = False


@dataclass(frozen=True, kw_only=True)
class StudySubmission:
    """A study's folder, which may not exist yet, and the rows to run now.

    `site` has the flags of a job without GPUs, `site_for` returns those for some resources.
    """

    request: StudyRequest
    study: StudyFolder
    settings: Study
    is_new: bool
    plan: Plan | None
    rows: list[StudyRow]
    todo: list[StudyRow]
    site: Site
    site_for: Callable[[Resources], Site]
    tree: snapshot.Tree

    def print_result(self, name: str, value: object) -> None:
        """Print `name: value`, or the shell assignment NAME=value."""
        quoted = shlex.quote(str(value))
        print(f"{name.upper()}={quoted}" if self.request.for_shell else f"{name}: {value}")

    def scripts(self) -> list[ArrayScript]:
        """Return the arrays of the rows to run with their batch scripts."""
        planned = self.plan.runs if self.plan else []
        configs = {run.name: run.cell.config for run in planned}
        size = client.max_array_size()
        return [
            (array, array_script(
                array, self.study, site=self.site_for(array.resources), tree=self.tree,
                throttle=self.settings.throttle, extra=self.request.flags,
            ))
            for array in make_arrays(self.study, self.todo, size=size, configs=configs)
        ]  # fmt: skip

    def run_request(self, row: StudyRow) -> RunRequest:
        """Return the request for one of the runs, as if it were submitted by itself."""
        planned = {run.name: run.cell for run in self.plan.runs} if self.plan else {}
        cell, run = planned.get(row.cell), RunFolder(self.study.cell(row.cell))
        config = cell.config if cell else run.config()
        return RunRequest(
            source=Path(str(self.settings.base)), overrides=overrides_of(cell) if cell else [],
            config=config, resumes=run if run.attempts() or not cell else None, identity="",
            site=self.site_for(config.resources), tree=self.tree, flags=self.request.flags,
        )  # fmt: skip

    def bill(self, scripts: Sequence[ArrayScript]) -> str:
        """Return the number of runs and the most that they cost."""
        hours = sum(len(one.rows) * one.resources.gpu_hours for one, _ in scripts)
        dropped = len(self.plan.runs) - len(self.plan.kept) if self.plan else 0
        counts = [plural(len(self.todo), "run"), plural(len(scripts), "array")]
        counts += [f"{dropped} more dropped"] if dropped else []
        return f"{', '.join(counts)}, at most {hours:g} GPU-hours"

    def report_script(self, after: Sequence[str]) -> BatchScript:
        """Return the batch script of the report that follows the jobs `after`."""
        extra = self.request.flags
        return report_script(self.study, after=after, site=self.site, tree=self.tree, extra=extra)

    def checks(self, scripts: Sequence[ArrayScript]) -> Iterator[CheckResult]:
        """Check everything that would be submitted."""
        partitions = cache(client.partitions)
        yield checked("cells", self._check_plan)
        yield checked("site", lambda: check_site(self.site))
        todo = {row.cell for row in self.todo}
        room = study_room(self.plan, self.site.logs, todo=todo) if self.plan else None
        yield room or passed("storage", "no checkpoints are forecast")
        for _, script in scripts:
            yield checked("cluster", partial(limits.check, script, partitions=partitions))

    def _check_plan(self) -> None:
        if self.plan and self.plan.fault:
            raise ConfigError(self.plan.fault)

    def check_choice(self) -> None:
        """Raise `Refused` if the runs need a session for their turns, or a process has them."""
        if self.settings.interleave and self.request.choices.how == "slurm":
            raise Refused(
                "interleave: runs take turns in one allocation, not in arrays; submit with --local "
                "(on a cluster in the session of env/interactive.sh), or set interleave=null"
            )
        check_no_process(self.study)


def submit_study(request: StudyRequest) -> int:
    """Queue the missing runs of a study, or start them here."""
    submission = study_submission(request)
    if submission.plan:
        print("\n".join(submission.plan.remarks), file=sys.stderr)
    submission.check_choice()
    if not submission.todo:
        submission.print_result("study", submission.study.path)
        print("nothing to run: no run is missing or failed", file=sys.stderr)
        return 0
    (_start if request.choices.how == "local" else _queue)(submission)
    return 0


def study_submission(request: StudyRequest) -> StudySubmission:
    """Resolve a request without writing anything."""
    site_for = cache(partial(read_site, ROOT, name=request.choices.site_name))
    site = site_for(Resources(gpus_per_node=0))
    check_logs_name(site)
    plan, study = _plan_and_folder(request, site.logs)
    is_new = study is None
    if study is None:
        assert plan is not None
        study = StudyFolder(site.logs / f"{plan.grid.name}-{new_id()}")
    known = [] if is_new else study.rows()
    rows = rows_with(plan, known) if plan else known
    missing = {run.name for run in plan.kept} - {row.cell for row in known} if plan else set()
    unfinished = (
        [] if is_new else rows_to_run(study, rerun=request.rerun, dropped=not request.with_forecast)
    )
    planned = {run.name for run in plan.runs} if plan else {row.cell for row in known}
    indexes = {row.index for row in unfinished if row.cell in planned}
    return StudySubmission(
        request=request,
        study=study,
        settings=plan.grid.study if plan else study.study(),
        is_new=is_new,
        plan=plan,
        rows=rows,
        todo=[row for row in rows if row.cell in missing or row.index in indexes],
        site=site,
        site_for=site_for,
        tree=snapshot.read_tree(ROOT),
    )


def _plan_and_folder(request: StudyRequest, logs: Path) -> tuple[Plan | None, StudyFolder | None]:
    """Return the plan, None to continue a folder unchanged, and the folder, None for a new one."""
    if is_study_folder(request.source):
        if request.overrides:
            raise ConfigError(
                f"{request.source}: a study's folder is continued unchanged; to add cells, submit "
                "the study file, or the config, with all its values"
            )
        return None, _own_study(request.source)
    grid = load_grid(request.source, request.overrides)
    plan = make_plan(grid, with_forecast=request.with_forecast)
    same = None if request.choices.new else find_study(plan, logs)
    if same is not None:
        print(f"continues {same.path}; --new starts another", file=sys.stderr)
    return plan, same


def _own_study(path: Path) -> StudyFolder:
    """Return the study in a folder; raise `ConfigError` if another user could change its runs."""
    study = StudyFolder(path.resolve())
    check_own(path)
    for row in study.rows():
        if is_run(study.cell(row.cell)):
            check_own(study.cell(row.cell))
    return study


def _queue(submission: StudySubmission) -> None:
    study, choices = submission.study, submission.request.choices
    scripts = submission.scripts()
    remarks = enforce(submission.checks(scripts), force=choices.force)
    confirm(submission.bill(scripts), runs=len(submission.todo), yes=choices.yes)
    _prepare(submission)
    submission.print_result("study", study.path)
    jobs: list[str] = []
    for number, (array, script) in enumerate(scripts):
        try:
            job = executor.submit(script)
        except (Refused, OSError):
            left = [row for later, _ in scripts[number:] for row in later.rows]
            roll_back(study, left, is_new=submission.is_new and not jobs)
            raise
        rows = [row.index for row in array.rows]
        save_array(study, job, executor.sbatch_text(script), first=array.first, rows=rows)
        jobs.append(job)
        submission.print_result("array", f"{job} ({len(rows)} runs, {array.shape})")
    if submission.settings.report:
        try:
            report = executor.submit(submission.report_script(jobs))
            submission.print_result("report", report)
        except Refused as error:
            make_it = f"bash {REPORT} {shlex.quote(str(study.path))}"
            remarks.append(f"no report is queued: {error}\nmake it with: {make_it}")
    print_remarks(remarks, follow="status", path=study.path)


def _prepare(submission: StudySubmission) -> None:
    """Make the snapshot, the folder and its cells, and record that the runs are queued."""
    snapshot.save(submission.tree, submission.site.logs)
    if submission.plan is not None:
        make_folder(submission.study, submission.plan, submission.rows)
    submission.study.stop_file.unlink(missing_ok=True)
    for row in submission.todo:
        record(RunFolder(submission.study.cell(row.cell)), "queued")


def _start(submission: StudySubmission) -> None:
    study, site = submission.study, submission.site
    remarks = enforce(submission.checks([]), force=submission.request.choices.force)
    _prepare(submission)
    kinds = {RunFolder(study.cell(row.cell)).config().kind for row in submission.todo[:1]}
    cells = study.jobs / "local.txt"
    lines = list_cells(study, submission.todo, submission.settings)
    cells.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code = submission.tree.folder(site.logs)
    script = BatchScript(
        flags={},
        exports=site.exports(),
        command=["bash", str(code / "jobs/cells.sh"), str(study.path), *kinds, str(cells)],
    )
    pid = executor.start_local(script, study.jobs)
    cells.with_name(f"{pid}.cells").touch()
    submission.print_result("study", study.path)
    submission.print_result("process", pid)
    print_remarks(remarks, follow="status", path=study.path)
