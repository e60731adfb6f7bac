"""One run to submit: the config that was asked for, and the batch script that it becomes."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from configs.checks.batch import check_ranks
from configs.checks.paths import check_paths, with_absolute_paths
from configs.errors import ConfigError
from configs.load import load
from configs.run.folder import ROOT, RunFolder, resume_config
from configs.schema import Run
from configs.schema.training import Resources
from launch.slurm import duration
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags, fits_a_directive, spell, template_flags
from launch.submit import snapshot
from launch.submit.site import Site


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run to submit: what was asked, checked, and where it will go."""

    source: Path
    overrides: list[str]
    config: Run
    resumes: RunFolder | None
    identity: str
    site: Site
    tree: snapshot.Tree
    flags: Flags

    @property
    def template(self) -> Path:
        """The job's file, in the tree."""
        return Path("jobs", f"{self.config.kind}.sbatch")

    @property
    def run(self) -> Path:
        """The run's folder, made or not."""
        if self.resumes:
            return self.resumes.path
        return self.site.logs / f"{self.source.stem}-{self.identity}"


def resolve_config(source: Path, overrides: list[str], resumes: RunFolder | None) -> Run:
    """The config that will run, checked as far as can be without the cluster."""
    if resumes:
        config = resume_config(resumes, overrides)
    else:
        config = with_absolute_paths(load(source, overrides))
    check_paths(config)
    if not fits_a_directive(source.stem):
        raise ConfigError(f"{source.stem!r}: a job cannot be named so; rename the YAML file")
    check_ranks(config, world=config.resources.world)
    return config


def batch_script(request: Request, run: Path) -> BatchScript:
    """The job of a request whose run's folder is `run`."""
    code = request.tree.folder(request.site.logs)
    asked = resource_flags(request.config.resources)
    own: Flags = {"job-name": run.name}
    changes = request.overrides if request.resumes else []
    return BatchScript(
        flags=job_flags(request.template, own, request.site, code=code)
        | asked
        | request.site.flags
        | request.flags,
        exports=request.site.exports(),
        command=["bash", str(code / request.template), str(run), *changes],
    )


def job_flags(template: Path, own: Flags, site: Site, *, code: Path) -> Flags:
    """The flags of a template and the job's `own`, for a job that runs the tree in `code`."""
    flags = template_flags(ROOT / template)
    # % begins a pattern in the path of the output.
    logs = str(site.logs).replace("%", "%%")
    output = Path(str(own.get("output", flags["output"]))).name
    return flags | own | {"chdir": str(code), "output": f"{logs}/{output}"}


def resource_flags(asked: Resources) -> Flags:
    """What a job needs of each node, apart from its GPUs, which sites spell differently."""
    flags: Flags = {
        "nodes": str(asked.nodes),
        "cpus-per-task": str(asked.cpus_per_gpu * max(asked.gpus_per_node, 1)),
        "time": duration.spell(asked.hours * 3600),
    }
    return flags | ({"mem": f"{asked.memory_gb}G"} if asked.memory_gb else {})


def by_hand(request: Request) -> str:
    """The command that submits the same without the launcher: the checkout, not a snapshot."""
    flags = batch_script(request, request.run).flags
    known = template_flags(ROOT / request.template) | {"chdir": flags["chdir"]}
    other = {name: value for name, value in flags.items() if known.get(name) != value}
    del other["job-name"]
    words = [*spell(other), str(request.template), str(request.source), *request.overrides]
    return shlex.join(["env", f"SITE={request.site.name}", "sbatch", *words])
