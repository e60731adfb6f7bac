"""Submit one run; every error is found before a folder is made."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from configs.errors import ConfigError
from configs.load import load, to_tree
from configs.paths import with_absolute_paths
from configs.schema import Command
from configs.terminal import plural
from launch.plan.checks import run_checks
from launch.plan.memory import forecast_of
from launch.slurm import client, executor
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, fits_a_directive
from launch.submit.refusals import enforce
from launch.submit.script import RunRequest, batch_script
from launch.submit.site import check_logs_name, read_site
from launch.submit.study_cells import record, roll_back
from runs import snapshot
from runs.folder import ROOT, RunFolder, is_run, make_run, new_id, resume_config, run_name
from runs.jobs import awaited_job, save_script, scripts_folder, started_job
from runs.state.fold import is_done
from runs.trust import check_own

How = Literal["slurm", "local", "plan"]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The flags of `submit` that say how; `new` makes another folder of a study."""

    how: How = "slurm"
    site_name: str | None = None
    new: bool = False
    force: bool = False


def submit(request: RunRequest, choices: Choices) -> int:
    """Queue a run, or start it here. Raises `ConfigError` and `Refused`."""
    if request.resumes and is_done(request.resumes, request.config):
        print(f"{request.source}: already done; raise train.steps to continue", file=sys.stderr)
        return 0
    is_local = choices.how == "local"
    forecast = None if is_local else forecast_of(request)
    remarks = enforce(run_checks(request, forecast), force=choices.force)
    if is_local:
        _start(request, remarks)
        return 0
    if request.resumes:
        check_no_job(request.resumes)
    print(bill(1, request.config.resources.gpu_hours), file=sys.stderr)
    _queue(request, remarks)
    return 0


def bill(runs: int, gpu_hours: float) -> str:
    """Return the number of runs and the most that they cost."""
    most = f", at most {gpu_hours:g} GPU-hours" if gpu_hours else ""
    return plural(runs, "run") + most


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


def _queue(request: RunRequest, remarks: list[str]) -> None:
    """Queue the job of a run; if sbatch refuses it, nothing is left."""
    hidden = [name for name in client.conflicting_variables() if name.startswith("SBATCH_")]
    if hidden:
        remarks.append(f"{', '.join(hidden)}: ignored; give flags after --, or in the site file")
    run = _prepare(request)
    script = batch_script(request, run.path)
    job = ""
    try:
        job = executor.submit(script)
        save_script(run, job, executor.sbatch_text(script))
    except (Refused, OSError):
        if job:
            client.cancel(job)
        roll_back([run], folder=None if request.resumes else run.path)
        raise
    print(f"run: {run.path}\njob: {job}")
    print_remarks(remarks, follow="tail", path=run.path)


def _start(request: RunRequest, remarks: list[str]) -> None:
    run = _prepare(request)
    script = batch_script(request, run.path)
    environment = executor.local_environment(script.exports)
    pid = executor.start_detached(script.command, scripts_folder(run), environment=environment)
    print(f"run: {run.path}\nprocess: {pid}")
    print_remarks(remarks, follow="tail", path=run.path)


def print_remarks(remarks: list[str], *, follow: str, path: Path) -> None:
    """Print the remarks of a submission and the command that follows a run or a study."""
    last = f"follow it: ditbench {follow} {shlex.quote(str(path))}"
    print("\n".join(dict.fromkeys([*remarks, last])), file=sys.stderr)


def _prepare(request: RunRequest) -> RunFolder:
    """Make the snapshot and the run's folder, and record that the run is queued."""
    snapshot.save(request.tree, request.site.logs)
    run = request.resumes or make_run(
        run_name(request.source, request.config), to_tree(request.config), identity=request.identity
    )
    scripts_folder(run).mkdir(exist_ok=True)
    record(run, "queued")
    return run


def check_no_job(run: RunFolder) -> None:
    """Refuse a second job for a run: its attempt would end the first job's."""
    jobs = [job for job in (awaited_job(run), started_job(run)) if job]
    for one in client.query_jobs(jobs).values():
        if not one.has_ended:
            raise Refused(
                f"{run.name}: its job {one.job} is {one.state}; wait until it ends, or cancel it: "
                f"ditbench cancel {shlex.quote(str(run.path))}"
            )
