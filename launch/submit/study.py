"""Submit a study, or its missing runs: a job for each, then the report."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.cells import Cell
from configs.grid.study_file import load_grid
from configs.schema import Study
from configs.schema.training import Resources
from configs.terminal import plural
from launch.plan.result import CheckResult, checked
from launch.plan.study import Plan, make_plan, overrides_of
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags
from launch.submit.local import check_no_process, list_cells, start_cells
from launch.submit.refusals import enforce
from launch.submit.run import Choices, bill, print_remarks
from launch.submit.script import REPORT, RunRequest, batch_script, report_script
from launch.submit.site import Site, check_logs_name, check_site, read_site
from launch.submit.study_cells import (
    find_study,
    jobs_ahead,
    make_folder,
    record,
    roll_back,
    rows_to_run,
    rows_with,
)
from runs import snapshot
from runs.folder import ROOT, RunFolder, is_run, new_id
from runs.jobs import save_script, scripts_folder
from runs.study_folder import StudyFolder, StudyRow, is_study_folder
from runs.trust import check_own


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A request to submit a study.

    `source` is a study file, a config with several values in `overrides`, or a study's folder.
    `rerun` includes the runs that ran out of memory.
    """

    source: Path
    overrides: list[str]
    flags: Flags
    choices: Choices
    rerun: bool = False


@dataclass(frozen=True, kw_only=True)
class StudySubmission:
    """A study's folder, which may not exist yet, and the rows to run now in their order.

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

    def requests(self) -> list[RunRequest]:
        """Return the request for each run, as if it were submitted by itself."""
        planned = {run.name: run.cell for run in self.plan.runs} if self.plan else {}
        return [self._request(row.cell, planned.get(row.cell)) for row in self.todo]

    def _request(self, name: str, cell: Cell | None) -> RunRequest:
        run = RunFolder(self.study.cell(name))
        config = cell.config if cell else run.config()
        return RunRequest(
            source=Path(str(self.settings.base)), overrides=overrides_of(cell) if cell else [],
            config=config, resumes=run if run.attempts() or not cell else None, identity=name,
            site=self.site_for(config.resources), tree=self.tree, flags=self.request.flags,
            study=self.study,
        )  # fmt: skip

    def bill(self, requests: Sequence[RunRequest]) -> str:
        """Return the number of runs and the most that they cost."""
        hours = sum(one.config.resources.gpu_hours for one in requests)
        return bill(len(requests), hours)

    def report_script(self, after: Sequence[str]) -> BatchScript:
        """Return the batch script of the report that follows the jobs `after`."""
        extra = self.request.flags
        return report_script(self.study, after=after, site=self.site, tree=self.tree, extra=extra)

    def checks(self, requests: Sequence[RunRequest]) -> Iterator[CheckResult]:
        """Check everything that would be submitted, one job of each shape."""
        partitions = cache(client.partitions)
        yield checked("cells", self._check_plan)
        yield checked("site", lambda: check_site(self.site))
        for one in first_of_shapes(requests):
            script = batch_script(one, one.run)
            yield checked("cluster", partial(limits.check, script, partitions=partitions))

    def _check_plan(self) -> None:
        if self.plan and self.plan.fault:
            raise ConfigError(self.plan.fault)

    def check_choice(self) -> None:
        """Raise `Refused` if the runs need a session for their turns, or a process has them."""
        if self.settings.interleave and self.request.choices.how == "slurm":
            raise Refused(
                "interleave: runs take turns in one allocation, not in jobs; submit with --local "
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
        print(f"study: {submission.study.path}")
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
    missing = {run.name for run in plan.runs} - {row.cell for row in known} if plan else set()
    unfinished = [] if is_new else rows_to_run(study, rerun=request.rerun)
    planned = {run.name for run in plan.runs} if plan else {row.cell for row in known}
    indexes = {row.index for row in unfinished if row.cell in planned}
    return StudySubmission(
        request=request,
        study=study,
        settings=plan.grid.study if plan else study.study(),
        is_new=is_new,
        plan=plan,
        rows=rows,
        todo=sorted(
            (row for row in rows if row.cell in missing or row.index in indexes),
            key=lambda row: row.order,
        ),
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
    plan = make_plan(grid, with_forecast=not request.choices.force)
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


def first_of_shapes(requests: Sequence[RunRequest]) -> list[RunRequest]:
    """Return the first run of each kind and shape: the jobs of the others only have other names."""
    return [*{(one.config.kind, one.config.resources): one for one in reversed(requests)}.values()]


def _queue(submission: StudySubmission) -> None:
    study, choices = submission.study, submission.request.choices
    requests = submission.requests()
    remarks = enforce(submission.checks(requests), force=choices.force)
    print(submission.bill(requests), file=sys.stderr)
    most = submission.settings.throttle
    ahead = jobs_ahead(study) if most and not submission.is_new else []
    _prepare(submission)
    print(f"study: {study.path}")
    jobs: list[str] = []
    for one in requests:
        script = batch_script(one, one.run)
        line = [*ahead, *jobs]
        if most and len(line) >= most:
            script = _begun_after(line[-most], script)
        try:
            job = executor.submit(script)
        except (Refused, OSError):
            left = (RunFolder(other.run) for other in requests[len(jobs) :])
            roll_back(left, folder=study.path if submission.is_new and not jobs else None)
            raise
        save_script(RunFolder(one.run), job, executor.sbatch_text(script))
        jobs.append(job)
    span = " to ".join(dict.fromkeys([jobs[0], jobs[-1]]))
    print(f"jobs: {span} ({plural(len(jobs), 'run')})")
    if submission.settings.report:
        try:
            report = executor.submit(submission.report_script(jobs))
            print(f"report: {report}")
        except Refused as error:
            make_it = f"bash {REPORT} {shlex.quote(str(study.path))}"
            remarks.append(f"no report is queued: {error}\nmake it with: {make_it}")
    print_remarks(remarks, follow="status", path=study.path)


def _begun_after(job: str, script: BatchScript) -> BatchScript:
    """Return the script of a job that begins when another has ended, beside what else it awaits."""
    awaited = script.flags.get("dependency")
    after = f"{awaited},afterany:{job}" if awaited else f"afterany:{job}"
    return replace(script, flags=script.flags | {"dependency": after})


def _prepare(submission: StudySubmission) -> None:
    """Make the snapshot, the folder and its cells, and record that the runs are queued."""
    snapshot.save(submission.tree, submission.site.logs)
    if submission.plan is not None:
        make_folder(submission.study, submission.plan, submission.rows)
    submission.study.stop_file.unlink(missing_ok=True)
    for row in submission.todo:
        run = RunFolder(submission.study.cell(row.cell))
        scripts_folder(run).mkdir(exist_ok=True)
        record(run, "queued")


def _start(submission: StudySubmission) -> None:
    study, site = submission.study, submission.site
    remarks = enforce(submission.checks([]), force=submission.request.choices.force)
    _prepare(submission)
    lines = list_cells(study, submission.todo, submission.settings)
    pid = start_cells(
        study, lines, RunFolder(study.cell(submission.todo[0].cell)).config().kind,
        code=submission.tree.folder(site.logs),
        environment=executor.local_environment(site.exports()),
    )  # fmt: skip
    print(f"study: {study.path}\nprocess: {pid}")
    print_remarks(remarks, follow="status", path=study.path)
