"""Submit a study, or what is missing of one: an array per resource shape, then the report."""

import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.load import read_tree, resolve_study
from configs.run import ROOT, RunFolder, new_id
from configs.schema import Study
from configs.schema.training import Resources
from configs.study import load_grid
from configs.study_folder import Row, StudyFolder, is_study_folder
from configs.yaml12 import ConfigError
from launch import cluster, limits, slurm, snapshot, submission
from launch.array import REPORT, Array, array_script, arrays_of, report_script
from launch.by_hand import cells_by_hand
from launch.cells import find_same, make_folder, record, rows_with, to_run, withdraw
from launch.cluster import Refused
from launch.flags import Flags
from launch.plan import Plan, make_plan
from launch.site import Site, ask_site, check_site
from launch.slurm import BatchScript


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the command line asks of a study.

    `source` is its file, a config with several values in `overrides`, or its folder. `into` is a
    folder to go on with, `fresh` asks for a new one, `again` for what ran out of memory too.
    """

    source: Path
    overrides: list[str]
    site_name: str | None
    flags: Flags
    into: Path | None = None
    fresh: bool = False
    again: bool = False
    with_forecast: bool = True


@dataclass(frozen=True, kw_only=True)
class Errand:
    """A study's folder, made or to be made, and what of it is to be run now."""

    study: StudyFolder
    settings: Study
    is_new: bool
    plan: Plan | None
    rows: list[Row]
    todo: list[Row]
    sites: "Sites"
    tree: snapshot.Tree
    flags: Flags


class Sites:
    """The site as it answers for each shape of resources, asked once for each."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._known: dict[tuple[str | None, int, int], Site] = {}

    def of(self, asked: Resources) -> Site:
        """The site, with the flags that these resources need."""
        key = (asked.gpu, asked.nodes, asked.gpus_per_node)
        if key not in self._known:
            self._known[key] = ask_site(ROOT, asked, name=self._name)
        return self._known[key]

    def plain(self) -> Site:
        """The site for a job that needs no GPU."""
        return self.of(Resources(gpus_per_node=0))


def submit_study(wish: Wish, *, how: str) -> int:
    """Submit, start here, or only print what of a study is to be run; 0 where that was done."""
    errand = _errand(wish)
    if not errand.todo:
        print(f"{errand.study.path}: nothing is missing, nothing has failed", file=sys.stderr)
        return 0
    {"slurm": _queue, "local": _start, "dry": _show}[how](errand)
    return 0


def _errand(wish: Wish) -> Errand:
    sites = Sites(wish.site_name)
    check_site(sites.plain())
    tree = snapshot.read_tree(ROOT)
    plan, study = _plan_and_folder(wish, sites.plain().logs)
    is_new = study is None
    if study is None:
        assert plan is not None
        study = StudyFolder(sites.plain().logs / f"{plan.grid.source.stem}-{new_id()}")
    known = [] if is_new else study.rows()
    rows = rows_with(plan, known, source=str(study.path)) if plan else known
    _check_no_process(study)
    missing = {run.name for run in plan.kept} - {row.cell for row in known} if plan else set()
    wanted = [] if is_new else to_run(study, again=wish.again, dropped=not wish.with_forecast)
    indexes = {row.index for row in wanted}
    return Errand(
        study=study,
        settings=plan.grid.study if plan else _settings(study),
        is_new=is_new,
        plan=plan,
        rows=rows,
        todo=[row for row in rows if row.cell in missing or row.index in indexes],
        sites=sites,
        tree=tree,
        flags=wish.flags,
    )


def _settings(study: StudyFolder) -> Study:
    return resolve_study(read_tree(study.study_file), source=str(study.study_file))


def _plan_and_folder(wish: Wish, logs: Path) -> tuple[Plan | None, StudyFolder | None]:
    """The plan, None for a folder that is gone on with as it is; the folder, None for a new one."""
    if wish.into is not None and not is_study_folder(wish.into):
        raise ConfigError(f"--into {wish.into}: not a study's folder")
    if is_study_folder(wish.source):
        if wish.overrides or wish.into:
            raise ConfigError(
                f"{wish.source}: a study's folder is gone on with as it is; to add cells, submit "
                "the study with --into this folder"
            )
        return None, StudyFolder(wish.source.resolve())
    plan = make_plan(load_grid(wish.source, wish.overrides), with_forecast=wish.with_forecast)
    print("\n".join(plan.remarks), file=sys.stderr)
    if wish.into is not None:
        return plan, StudyFolder(wish.into.resolve())
    same = None if wish.fresh else find_same(plan, logs)
    if same is not None:
        print(f"goes on with {same.path}; --new begins another", file=sys.stderr)
    return plan, same


def _check_no_process(study: StudyFolder) -> None:
    """Refuse to run cells twice at once, where a process of this machine runs them."""
    for file in study.jobs.glob("*.cells"):
        pid = file.stem
        if pid.isdigit() and _is_ours(pid):
            raise Refused(
                f"{study.path}: process {pid} runs it here; wait, or end it with "
                f"python -m launch cancel {shlex.quote(str(study.path))}"
            )


def _is_ours(pid: str) -> bool:
    """Whether a process is submitit's: its number may be another's by now."""
    try:
        return b"submitit" in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


def _show(errand: Errand) -> None:
    arrays = _future_arrays(errand)
    for array in arrays:
        print(slurm.sbatch_text(_script(errand, array)))
    if errand.settings.report:
        print(slurm.sbatch_text(_report(errand, ["JOB"] * len(arrays))))
    print("# The same by hand, of the checkout instead of a snapshot of it, a run each:")
    for array in arrays:
        for line in cells_by_hand(array, errand.plan, _script(errand, array)):
            print(textwrap.indent(line, "# ", lambda line: True))


def _future_arrays(errand: Errand) -> list[Array]:
    """The arrays, of which no folder need be there."""
    planned = errand.plan.runs if errand.plan else []
    configs = {run.name: run.cell.config for run in planned}
    size = cluster.array_size()
    return list(arrays_of(errand.study, errand.todo, size=size, configs=configs))


def _script(errand: Errand, array: Array) -> BatchScript:
    return array_script(
        array,
        errand.study,
        site=errand.sites.of(array.resources),
        tree=errand.tree,
        throttle=errand.settings.throttle,
        extra=errand.flags,
    )


def _report(errand: Errand, after: Sequence[str]) -> BatchScript:
    return report_script(
        errand.study, after=after, site=errand.sites.plain(), tree=errand.tree, extra=errand.flags
    )


def _queue(errand: Errand) -> None:
    arrays = _future_arrays(errand)
    scripts = [_script(errand, array) for array in arrays]
    known = cluster.partitions()
    remarks = [
        remark
        for script in scripts
        for remark in limits.check(script.flags, slurm.sbatch_text(script), known=known)
    ]
    _prepare(errand)
    print(f"study: {errand.study.path}")
    jobs: list[str] = []
    for number, (array, script) in enumerate(zip(arrays, scripts, strict=True)):
        try:
            job = slurm.submit(script)
        except (Refused, OSError):
            left = [row for later in arrays[number:] for row in later.rows]
            withdraw(errand.study, left, is_new=errand.is_new and not jobs)
            raise
        rows = [row.index for row in array.rows]
        text = slurm.sbatch_text(script)
        submission.keep_array(errand.study, job, text, first=array.first, rows=rows)
        jobs.append(job)
        print(f"array: {job} ({len(rows)} runs, {array.shape})")
    quoted = shlex.quote(str(errand.study.path))
    if errand.settings.report:
        try:
            print(f"report: {slurm.submit(_report(errand, jobs))}")
        except Refused as error:
            remarks.append(f"no report is queued: {error}\nmake it: bash {REPORT} {quoted}")
    remarks.append(f"look at it: python -m launch status {quoted}")
    print("\n".join(dict.fromkeys(remarks)), file=sys.stderr)


def _prepare(errand: Errand) -> None:
    """The snapshot, the folder with its cells, and the event that begins their wait."""
    snapshot.keep(errand.tree, errand.sites.plain().logs)
    if errand.plan is not None:
        make_folder(errand.study, errand.plan, errand.rows)
    errand.study.stop_file.unlink(missing_ok=True)
    for row in errand.todo:
        record(RunFolder(errand.study.cell(row.cell)), "queued")


def _start(errand: Errand) -> None:
    slurm.check_folder(errand.study.path)
    _prepare(errand)
    kinds = {RunFolder(errand.study.cell(row.cell)).config().kind for row in errand.todo[:1]}
    listed = errand.study.jobs / "local.txt"
    names = [row.cell for row in sorted(errand.todo, key=lambda row: row.order)]
    listed.write_text("\n".join(names) + "\n", encoding="utf-8")
    code = errand.tree.folder(errand.sites.plain().logs)
    script = BatchScript(
        flags={},
        exports=errand.sites.plain().exports(),
        command=["bash", str(code / "jobs/cells.sh"), str(errand.study.path), *kinds, str(listed)],
    )
    pid = slurm.start_here(script, errand.study.jobs)
    listed.with_name(f"{pid}.cells").touch()
    print(f"study: {errand.study.path}\nprocess: {pid}")
    quoted = shlex.quote(str(errand.study.path))
    print(f"look at it: python -m launch status {quoted}", file=sys.stderr)
