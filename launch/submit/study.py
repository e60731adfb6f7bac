"""Submit a study, or its missing runs: an array per resource shape, then the report."""

import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import load_grid
from configs.load import read_tree, resolve_study
from configs.run.folder import ROOT, RunFolder, new_id
from configs.run.study_folder import StudyFolder, StudyRow, is_study_folder
from configs.schema import Study
from configs.schema.training import Resources
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags
from launch.status.jobs import save_array
from launch.submit import snapshot
from launch.submit.plan import Plan, make_plan
from launch.submit.script import (
    REPORT,
    Array,
    array_script,
    make_arrays,
    report_script,
    sbatch_commands,
)
from launch.submit.site import Site, check_site, read_site
from launch.submit.study_cells import (
    find_matching_study,
    make_folder,
    record,
    roll_back,
    rows_to_run,
    rows_with,
)


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A request to submit a study.

    `source` is a study file, a config with several values in `overrides`, or a study's folder.
    `into` names the folder to extend, `new` asks for a new one, and `rerun` includes the runs that
    ran out of memory. `for_shell` prints the results as shell assignments.
    """

    source: Path
    overrides: list[str]
    site_name: str | None
    flags: Flags
    into: Path | None = None
    new: bool = False
    rerun: bool = False
    with_forecast: bool = True
    for_shell: bool = False


class Sites:
    """The site with its flags, read once per shape of resources."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._known: dict[tuple[str | None, int, int], Site] = {}

    def for_resources(self, resources: Resources) -> Site:
        """Return the site with the flags for these resources."""
        key = (resources.gpu, resources.nodes, resources.gpus_per_node)
        if key not in self._known:
            self._known[key] = read_site(ROOT, resources, name=self._name)
        return self._known[key]

    def without_gpus(self) -> Site:
        """Return the site with the flags of a job without GPUs."""
        return self.for_resources(Resources(gpus_per_node=0))


@dataclass(frozen=True, kw_only=True)
class StudySubmission:
    """A study's folder, which may not exist yet, and the rows to run now."""

    study: StudyFolder
    settings: Study
    is_new: bool
    plan: Plan | None
    rows: list[StudyRow]
    todo: list[StudyRow]
    sites: Sites
    tree: snapshot.Tree
    flags: Flags
    for_shell: bool

    def print_result(self, name: str, value: object) -> None:
        """Print `name: value`, or the shell assignment NAME=value."""
        quoted = shlex.quote(str(value))
        print(f"{name.upper()}={quoted}" if self.for_shell else f"{name}: {value}")

    def arrays(self) -> list[Array]:
        """Return the arrays of the rows to run."""
        planned = self.plan.runs if self.plan else []
        configs = {run.name: run.cell.config for run in planned}
        size = client.max_array_size()
        return list(make_arrays(self.study, self.todo, size=size, configs=configs))

    def array_script(self, array: Array) -> BatchScript:
        """Return the batch script of an array."""
        return array_script(
            array,
            self.study,
            site=self.sites.for_resources(array.resources),
            tree=self.tree,
            throttle=self.settings.throttle,
            extra=self.flags,
        )

    def report_script(self, after: Sequence[str]) -> BatchScript:
        """Return the batch script of the report that follows the jobs `after`."""
        site = self.sites.without_gpus()
        return report_script(self.study, after=after, site=site, tree=self.tree, extra=self.flags)


def submit_study(request: StudyRequest, *, how: str) -> int:
    """Queue the missing runs of a study, start them here, or print their scripts."""
    submission = _submission(request)
    if not submission.todo:
        submission.print_result("study", submission.study.path)
        print("nothing to run: no run is missing or failed", file=sys.stderr)
        return 0
    {"slurm": _queue, "local": _start, "dry": _print}[how](submission)
    return 0


def _submission(request: StudyRequest) -> StudySubmission:
    """Resolve and check a request without writing anything."""
    sites = Sites(request.site_name)
    check_site(sites.without_gpus())
    tree = snapshot.read_tree(ROOT)
    logs = sites.without_gpus().logs
    plan, study = _plan_and_folder(request, logs)
    is_new = study is None
    if study is None:
        assert plan is not None
        study = StudyFolder(logs / f"{plan.grid.source.stem}-{new_id()}")
    known = [] if is_new else study.rows()
    rows = rows_with(plan, known, source=str(study.path)) if plan else known
    _check_no_process(study)
    missing = {run.name for run in plan.kept} - {row.cell for row in known} if plan else set()
    unfinished = (
        [] if is_new else rows_to_run(study, rerun=request.rerun, dropped=not request.with_forecast)
    )
    indexes = {row.index for row in unfinished}
    return StudySubmission(
        study=study,
        settings=plan.grid.study if plan else _settings(study),
        is_new=is_new,
        plan=plan,
        rows=rows,
        todo=[row for row in rows if row.cell in missing or row.index in indexes],
        sites=sites,
        tree=tree,
        flags=request.flags,
        for_shell=request.for_shell,
    )


def _settings(study: StudyFolder) -> Study:
    return resolve_study(read_tree(study.study_file), source=str(study.study_file))


def _plan_and_folder(request: StudyRequest, logs: Path) -> tuple[Plan | None, StudyFolder | None]:
    """Return the plan, None to continue a folder unchanged, and the folder, None for a new one."""
    if request.into is not None and not is_study_folder(request.into):
        raise ConfigError(f"--into {request.into}: not a study's folder")
    if is_study_folder(request.source):
        if request.overrides or request.into:
            raise ConfigError(
                f"{request.source}: a study's folder is continued unchanged; to add cells, submit "
                "the study with --into this folder"
            )
        return None, StudyFolder(request.source.resolve())
    grid = load_grid(request.source, request.overrides)
    plan = make_plan(grid, with_forecast=request.with_forecast)
    if plan.absent:
        raise ConfigError(plan.absent)
    print("\n".join(plan.remarks), file=sys.stderr)
    if request.into is not None:
        return plan, StudyFolder(request.into.resolve())
    same = None if request.new else find_matching_study(plan, logs)
    if same is not None:
        print(f"continues {same.path}; --new starts another", file=sys.stderr)
    return plan, same


def _check_no_process(study: StudyFolder) -> None:
    """Raise `Refused` if a process on this machine already runs the cells."""
    for file in study.jobs.glob("*.cells"):
        pid = file.stem
        if pid.isdigit() and _is_ours(pid):
            raise Refused(
                f"{study.path}: process {pid} already runs it here; wait, or end it with "
                f"python -m launch cancel {shlex.quote(str(study.path))}"
            )


def _is_ours(pid: str) -> bool:
    """Return whether the process is submitit's; the pid may have been reused."""
    try:
        return b"submitit" in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


def _print(submission: StudySubmission) -> None:
    scripts = [(array, submission.array_script(array)) for array in submission.arrays()]
    for _, script in scripts:
        print(executor.sbatch_text(script))
    if submission.settings.report:
        print(executor.sbatch_text(submission.report_script(["JOB"] * len(scripts))))
    print("# Equivalent commands, one per run, for the checkout instead of a snapshot:")
    for array, script in scripts:
        for line in sbatch_commands(array, submission.plan, script):
            print(textwrap.indent(line, "# ", lambda line: True))


def _queue(submission: StudySubmission) -> None:
    study = submission.study
    scripts = [(array, submission.array_script(array)) for array in submission.arrays()]
    partitions = client.partitions()
    remarks = [
        remark
        for _, script in scripts
        for remark in limits.check(
            script.flags, executor.sbatch_text(script), partitions=partitions
        )
    ]
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
    quoted = shlex.quote(str(study.path))
    if submission.settings.report:
        try:
            report = executor.submit(submission.report_script(jobs))
            submission.print_result("report", report)
        except Refused as error:
            remarks.append(f"no report is queued: {error}\nmake it with: bash {REPORT} {quoted}")
    remarks.append(f"follow it: python -m launch status {quoted}")
    print("\n".join(dict.fromkeys(remarks)), file=sys.stderr)


def _prepare(submission: StudySubmission) -> None:
    """Make the snapshot, the folder and its cells, and record that the runs are queued."""
    snapshot.save(submission.tree, submission.sites.without_gpus().logs)
    if submission.plan is not None:
        make_folder(submission.study, submission.plan, submission.rows)
    submission.study.stop_file.unlink(missing_ok=True)
    for row in submission.todo:
        record(RunFolder(submission.study.cell(row.cell)), "queued")


def _start(submission: StudySubmission) -> None:
    study, site = submission.study, submission.sites.without_gpus()
    executor.check_folder(study.path)
    _prepare(submission)
    kinds = {RunFolder(study.cell(row.cell)).config().kind for row in submission.todo[:1]}
    cells = study.jobs / "local.txt"
    names = [row.cell for row in sorted(submission.todo, key=lambda row: row.order)]
    cells.write_text("\n".join(names) + "\n", encoding="utf-8")
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
    print(f"follow it: python -m launch status {shlex.quote(str(study.path))}", file=sys.stderr)
