"""Resolve what a user asks for: a run, a study, or what is left of one."""

import sys
from functools import cache, partial
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import load_grid
from configs.load import load
from configs.paths import with_absolute_paths
from configs.schema import Command
from configs.schema.training import Resources
from launch.plan.study import Plan, make_plan
from launch.slurm.flags import Flags, fits_a_directive
from launch.submit import snapshot
from launch.submit.config import ConfigSubmission, StudyLeft
from launch.submit.script import RunRequest
from launch.submit.site import check_logs_name, read_site
from launch.submit.study_cells import find_study, rows_to_run, rows_with
from launch.submit.submission import Choices
from runs.folder import ROOT, RunFolder, is_run, new_id, resume_config, run_name
from runs.study_folder import StudyFolder, is_study_folder
from runs.trust import check_own


def run_request(
    source: Path, overrides: list[str], *, site_name: str | None, extra: Flags
) -> RunRequest:
    """Resolve a request; raise `ConfigError` if no batch script can be written for it."""
    resumes = RunFolder(source.resolve()) if is_run(source) else None
    if resumes:
        check_own(source)
        config = resume_config(resumes, overrides)
        if isinstance(config, Command):
            raise ConfigError(f"{source}: a run without its batch script; submit the script anew")
    else:
        config = with_absolute_paths(load(source, overrides))
    if not fits_a_directive(run_name(source, config)):
        raise ConfigError(f"{source.stem!r}: invalid as a job name; rename the YAML file")
    site = read_site(ROOT, config.resources, name=site_name)
    check_logs_name(site)
    return RunRequest(
        source=source,
        overrides=overrides,
        config=config,
        resumes=resumes,
        identity=new_id(),
        site=site,
        tree=snapshot.read_tree(ROOT),
        flags=extra,
    )


def study_submission(
    source: Path, overrides: list[str], *, flags: Flags, choices: Choices, rerun: bool = False
) -> ConfigSubmission:
    """Resolve a study file, a config with several values in `overrides`, or a study's folder.

    `rerun` includes the runs that ran out of memory.
    """
    site_for = cache(partial(read_site, ROOT, name=choices.site_name))
    site = site_for(Resources(gpus_per_node=0))
    check_logs_name(site)
    plan, known = _plan_and_folder(source, overrides, choices, site.logs)
    study = known
    if study is None:
        assert plan is not None
        study = StudyFolder(site.logs / f"{plan.grid.name}-{new_id()}")
    before = known.rows() if known else []
    rows = rows_with(plan, before) if plan else before
    names = {row.cell for row in rows_to_run(study, rerun=rerun)} if known else set()
    names |= {row.cell for row in rows[len(before) :]}
    cells = plan.cells if plan else {}
    names &= cells.keys() if plan else names
    settings, tree = plan.grid.study if plan else study.study(), snapshot.read_tree(ROOT)

    def cell_request(name: str) -> RunRequest:
        run, cell = RunFolder(study.cell(name)), cells.get(name)
        config = cell.config if cell else run.config()
        return RunRequest(
            source=source, overrides=[], config=config, identity=name,
            resumes=run if run.attempts() or not cell else None,
            site=site_for(config.resources), tree=tree, flags=flags, study=study,
        )  # fmt: skip

    todo = sorted((row for row in rows if row.cell in names), key=lambda row: row.order)
    return ConfigSubmission(
        choices=choices,
        folder=study.path,
        is_new=known is None,
        requests=[cell_request(row.cell) for row in todo],
        site=site,
        tree=tree,
        study=StudyLeft(folder=study, settings=settings, plan=plan, rows=rows),
    )


def _plan_and_folder(
    source: Path, overrides: list[str], choices: Choices, logs: Path
) -> tuple[Plan | None, StudyFolder | None]:
    """Return the plan, None to continue a folder unchanged, and the folder, None for a new one."""
    if is_study_folder(source):
        if overrides:
            raise ConfigError(
                f"{source}: a study's folder is continued unchanged; to add cells, submit "
                "the study file, or the config, with all its values"
            )
        return None, own_study(source)
    plan = make_plan(load_grid(source, overrides), with_forecast=not choices.force)
    same = None if choices.new else find_study(plan, logs)
    if same is not None:
        print(f"continues {same.path}; --new starts another", file=sys.stderr)
    return plan, same


def own_study(path: Path) -> StudyFolder:
    """Return the study in a folder; raise `ConfigError` if another user could change its runs."""
    study = StudyFolder(path.resolve())
    check_own(path)
    for row in study.rows():
        if is_run(study.cell(row.cell)):
            check_own(study.cell(row.cell))
    return study
