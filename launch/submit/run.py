"""From a config to a queued job: everything that can be wrong is found before a folder is made."""

import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Literal

from configs.load import to_tree
from configs.run.folder import ROOT, RunFolder, is_run, make_run, new_id
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.flags import Flags
from launch.status import submitted_jobs
from launch.submit import snapshot
from launch.submit.script import Request, batch_script, by_hand, resolve_config
from launch.submit.site import ask_site, check_site

How = Literal["slurm", "local", "dry"]


def submit(
    source: Path, overrides: list[str], *, how: How, site_name: str | None, extra: Flags
) -> int:
    """Submit, start here, or only print; 0 where that was done. Raises ConfigError and Refused."""
    resumes = RunFolder(source.resolve()) if is_run(source) else None
    config = resolve_config(source, overrides, resumes)
    if resumes and resumes.is_done(config):
        print(f"{source}: done already; raise train.steps to go on", file=sys.stderr)
        return 0
    site = ask_site(ROOT, config.resources, name=site_name)
    check_site(site)
    request = Request(
        source=source,
        overrides=overrides,
        config=config,
        resumes=resumes,
        identity=new_id(),
        site=site,
        tree=snapshot.read_tree(ROOT),
        flags=extra,
    )
    {"slurm": _queue, "local": _start, "dry": _show}[how](request)
    return 0


def _show(request: Request) -> None:
    print(executor.sbatch_text(batch_script(request, request.run)))
    print("# The same by hand, of the checkout instead of a snapshot of it:")
    print(textwrap.indent(by_hand(request), "# ", lambda line: True))


def _queue(request: Request) -> None:
    planned = batch_script(request, request.run)
    remarks = limits.check(planned.flags, executor.sbatch_text(planned))
    hidden = [name for name in client.misleading_variables() if name.startswith("SBATCH_")]
    if hidden:
        remarks.append(f"{', '.join(hidden)}: not heeded; give flags after --, or in the site file")
    if request.resumes:
        _check_idle(request.resumes)
    run = _prepare(request)
    script = batch_script(request, run.path)
    try:
        job = executor.submit(script)
    except (Refused, OSError):
        _withdraw(request, run)
        raise
    submitted_jobs.keep_text(run, job, executor.sbatch_text(script))
    print(f"run: {run.path}\njob: {job}")
    remarks.append(f"follow it: python -m launch tail {shlex.quote(str(run.path))}")
    print("\n".join(remarks), file=sys.stderr)


def _start(request: Request) -> None:
    executor.check_folder(request.run)
    run = _prepare(request)
    folder = submitted_jobs.folder(run)
    folder.mkdir(exist_ok=True)
    try:
        pid = executor.start_here(batch_script(request, run.path), folder)
    except Refused:
        _withdraw(request, run)
        raise
    print(f"run: {run.path}\nprocess: {pid}")
    print(f"follow it: python -m launch tail {shlex.quote(str(run.path))}", file=sys.stderr)


def _prepare(request: Request) -> RunFolder:
    """The snapshot, the run's folder, and the event that begins its wait."""
    snapshot.keep(request.tree, request.site.logs)
    run = request.resumes or make_run(
        request.source.stem, to_tree(request.config), identity=request.identity
    )
    _record(run, "queued")
    return run


def _withdraw(request: Request, run: RunFolder) -> None:
    """Undo what was prepared for a job that sbatch did not take."""
    if request.resumes:
        _record(run, "failed", reason="config", message="the job was not taken")
    else:
        shutil.rmtree(run.path)


def _record(run: RunFolder, event: str, **fields: str) -> None:
    run.record_event(max(run.attempts(), default=0) + 1, event, **fields)


def _check_idle(run: RunFolder) -> None:
    """Refuse a second job for a run: the newer one would end the older one's work."""
    ids = {submitted_jobs.submitted_job(run), submitted_jobs.begun_job(run)} - {None}
    for job, known in client.jobs([str(job) for job in ids]).items():
        if not known.has_ended:
            raise Refused(
                f"{run.name}: its job {job} is {known.state}; wait for its end, or end it with "
                f"python -m launch cancel {shlex.quote(str(run.path))}"
            )
