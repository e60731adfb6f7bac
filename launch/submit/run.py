"""Submit one run; every error is found before a folder is made."""

import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Literal

from configs.checks.batch import check_ranks
from configs.checks.paths import check_paths, with_absolute_paths
from configs.errors import ConfigError
from configs.load import load, to_tree
from configs.run.folder import ROOT, RunFolder, is_run, make_run, new_id, resume_config
from configs.schema import Run
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, fits_a_directive
from launch.status.jobs import save_script, scripts_folder, started_job, submitted_job
from launch.submit import snapshot
from launch.submit.script import RunRequest, batch_script, sbatch_command
from launch.submit.site import check_site, read_site

How = Literal["slurm", "local", "dry"]


def submit(
    source: Path, overrides: list[str], *, how: How, site_name: str | None, extra: Flags
) -> int:
    """Queue a run, start it here, or print its script. Raises `ConfigError` and `Refused`."""
    resumes = RunFolder(source.resolve()) if is_run(source) else None
    config = read_config(source, overrides, resumes)
    _check_config(config, source)
    if resumes and resumes.is_done(config):
        print(f"{source}: already done; raise train.steps to continue", file=sys.stderr)
        return 0
    site = read_site(ROOT, config.resources, name=site_name)
    check_site(site)
    request = RunRequest(
        source=source,
        overrides=overrides,
        config=config,
        resumes=resumes,
        identity=new_id(),
        site=site,
        tree=snapshot.read_tree(ROOT),
        flags=extra,
    )
    {"slurm": _queue, "local": _start, "dry": _print}[how](request)
    return 0


def read_config(source: Path, overrides: list[str], resumes: RunFolder | None) -> Run:
    """Return the config of a new run, or of one to resume."""
    if resumes:
        return resume_config(resumes, overrides)
    return with_absolute_paths(load(source, overrides))


def _check_config(config: Run, source: Path) -> None:
    """Check what can be checked without the cluster."""
    check_paths(config)
    if not fits_a_directive(source.stem):
        raise ConfigError(f"{source.stem!r}: invalid as a job name; rename the YAML file")
    check_ranks(config, world=config.resources.world)


def _print(request: RunRequest) -> None:
    print(executor.sbatch_text(batch_script(request, request.run)))
    print("# Equivalent command, for the checkout instead of a snapshot:")
    print(textwrap.indent(sbatch_command(request), "# ", lambda line: True))


def _queue(request: RunRequest) -> None:
    planned = batch_script(request, request.run)
    remarks = limits.check(planned.flags, executor.sbatch_text(planned))
    hidden = [name for name in client.conflicting_variables() if name.startswith("SBATCH_")]
    if hidden:
        remarks.append(f"{', '.join(hidden)}: ignored; give flags after --, or in the site file")
    if request.resumes:
        _check_idle(request.resumes)
    run = _prepare(request)
    script = batch_script(request, run.path)
    try:
        job = executor.submit(script)
    except (Refused, OSError):
        _roll_back(request, run)
        raise
    save_script(run, job, executor.sbatch_text(script))
    print(f"run: {run.path}\njob: {job}")
    remarks.append(f"follow it: python -m launch tail {shlex.quote(str(run.path))}")
    print("\n".join(remarks), file=sys.stderr)


def _start(request: RunRequest) -> None:
    executor.check_folder(request.run)
    run = _prepare(request)
    scripts_folder(run).mkdir(exist_ok=True)
    try:
        pid = executor.start_local(batch_script(request, run.path), scripts_folder(run))
    except Refused:
        _roll_back(request, run)
        raise
    print(f"run: {run.path}\nprocess: {pid}")
    print(f"follow it: python -m launch tail {shlex.quote(str(run.path))}", file=sys.stderr)


def _prepare(request: RunRequest) -> RunFolder:
    """Make the snapshot and the run's folder, and record that the run is queued."""
    snapshot.save(request.tree, request.site.logs)
    run = request.resumes or make_run(
        request.source.stem, to_tree(request.config), identity=request.identity
    )
    _record(run, "queued")
    return run


def _roll_back(request: RunRequest, run: RunFolder) -> None:
    """Undo the preparation of a job that sbatch refused."""
    if request.resumes:
        _record(run, "failed", reason="config", message="the job was not accepted")
    else:
        shutil.rmtree(run.path)


def _record(run: RunFolder, event: str, **fields: str) -> None:
    run.record_event(max(run.attempts(), default=0) + 1, event, **fields)


def _check_idle(run: RunFolder) -> None:
    """Refuse a second job for a run: its attempt would end that of the first."""
    ids = {submitted_job(run), started_job(run)} - {None}
    for job, known in client.query_jobs([str(job) for job in ids]).items():
        if not known.has_ended:
            raise Refused(
                f"{run.name}: its job {job} is {known.state}; wait until it ends, or cancel it: "
                f"python -m launch cancel {shlex.quote(str(run.path))}"
            )
