"""What a wish about a study comes to: its folder, and the runs of it that are still to be run."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import load_grid
from configs.load import read_tree, resolve_study
from configs.run.folder import ROOT, new_id
from configs.run.study_folder import StudyFolder, StudyRow, is_study_folder
from configs.schema import Study
from configs.schema.training import Resources
from launch.slurm.client import Refused
from launch.slurm.flags import Flags
from launch.submit import snapshot
from launch.submit.plan import Plan, make_plan
from launch.submit.site import Site, ask_site, check_site
from launch.submit.study_cells import find_same, rows_with, to_run


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
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
class StudySubmission:
    """A study's folder, made or to be made, and what of it is to be run now."""

    study: StudyFolder
    settings: Study
    is_new: bool
    plan: Plan | None
    rows: list[StudyRow]
    todo: list[StudyRow]
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


def study_submission(wish: StudyRequest) -> StudySubmission:
    """What a wish comes to, checked; nothing is written yet. Raises ConfigError and Refused."""
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
    return StudySubmission(
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


def _plan_and_folder(wish: StudyRequest, logs: Path) -> tuple[Plan | None, StudyFolder | None]:
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
    if plan.absent:
        raise ConfigError(plan.absent)
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
