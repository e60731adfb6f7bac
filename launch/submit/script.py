"""The batch scripts of a run, by itself or in a study, and of a study's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Run
from configs.schema.training import Resources
from launch.slurm import client
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags, template_flags
from launch.submit import snapshot
from launch.submit.site import Site
from runs.folder import ROOT, RunFolder, run_name
from runs.study_folder import StudyFolder

REPORT = Path("jobs", "report.sbatch")
# Flags for the cells that say who pays and where; the report takes them too.
_PASSED_ON = ("account", "partition", "qos", "reservation", "clusters")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run to submit: the request, its config and where it will go.

    `identity` is the id of a new run, or the name of a cell of `study`.
    """

    source: Path
    overrides: list[str]
    config: Run
    resumes: RunFolder | None
    identity: str
    site: Site
    tree: snapshot.Tree
    flags: Flags
    study: StudyFolder | None = None

    @property
    def template(self) -> Path:
        """The job file, relative to the tree."""
        return Path("jobs", f"{self.config.kind}.sbatch")

    @property
    def run(self) -> Path:
        """The run's folder, which may not exist yet."""
        if self.resumes:
            return self.resumes.path
        if self.study:
            return self.study.cell(self.identity)
        return self.site.logs / f"{run_name(self.source, self.config)}-{self.identity}"


def batch_script(request: RunRequest, run: Path) -> BatchScript:
    """Return the batch script of a request with the run's folder `run`."""
    code = request.tree.folder(request.site.logs)
    study = request.study
    # The config of a cell is in its folder.
    changes = request.overrides if request.resumes and not study else []
    own: Flags = {"job-name": study.path.name if study else run.name}
    outputs = study.jobs if study else request.site.logs
    return BatchScript(
        flags=_job_flags(request.template, own, outputs, code=code)
        | _resource_flags(request.config.resources)
        | request.site.flags
        | request.flags,
        exports=request.site.exports(),
        command=["bash", str(code / request.template), str(run), *changes],
        check=request.tree.check(request.site.logs),
    )


def report_script(
    study: StudyFolder, *, after: Sequence[str], site: Site, tree: snapshot.Tree, extra: Flags
) -> BatchScript:
    """Return the batch script of the report, which runs after the jobs `after` in any state."""
    code = tree.folder(site.logs)
    own: Flags = {"job-name": study.path.name, "dependency": f"afterany:{':'.join(after)}"}
    flags = _job_flags(REPORT, own, study.jobs, code=code)
    passed_on: Flags = {name: extra[name] for name in _PASSED_ON if name in extra}
    return BatchScript(
        flags=flags | site.flags | passed_on,
        exports=site.exports(),
        command=["bash", str(code / REPORT), str(study.path)],
        check=tree.check(site.logs),
    )


def _job_flags(template: Path, own: Flags, folder: Path, *, code: Path) -> Flags:
    """Return the template's flags and the job's `own`, with its output in `folder`."""
    flags = template_flags(ROOT / template)
    output = Path(str(flags["output"])).name
    # % begins a pattern in the path of the output.
    path = str(folder).replace("%", "%%")
    return flags | own | {"chdir": str(code), "output": f"{path}/{output}"}


def _resource_flags(resources: Resources) -> Flags:
    """Return the flags for nodes, CPUs, time and memory; those for GPUs differ by site."""
    flags: Flags = {
        "nodes": str(resources.nodes),
        "cpus-per-task": str(resources.cpus_per_gpu * max(resources.gpus_per_node, 1)),
        "time": client.format_duration(resources.hours * 3600),
    }
    return flags | ({"mem": f"{resources.memory_gb}G"} if resources.memory_gb else {})
