"""The request of a user to run a config, or to resume a run."""

import shlex
from pathlib import Path

from configs.errors import ConfigError
from configs.load import load
from configs.paths import with_absolute_paths
from configs.schema import Command
from launch.slurm import client
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, fits_a_directive
from launch.submit.script import RunRequest
from launch.submit.site import check_logs_name, read_site
from runs import snapshot
from runs.folder import ROOT, RunFolder, is_run, new_id, resume_config, run_name
from runs.jobs import awaited_job, started_job
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


def check_no_job(run: RunFolder) -> None:
    """Refuse a second job for a run: its attempt would end the first job's."""
    jobs = [job for job in (awaited_job(run), started_job(run)) if job]
    for one in client.query_jobs(jobs).values():
        if not one.has_ended:
            raise Refused(
                f"{run.name}: its job {one.job} is {one.state}; wait until it ends, or cancel it: "
                f"ditbench cancel {shlex.quote(str(run.path))}"
            )
