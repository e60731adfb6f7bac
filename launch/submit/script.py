"""The batch scripts of a run, of a study's arrays and of its report, and the plain commands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.load import flatten, read_tree, to_tree
from configs.schema import Run
from configs.schema.training import Resources
from configs.yaml12 import dump_value
from launch.slurm import client
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags, template_flags
from launch.submit.site import Site
from runs import snapshot
from runs.folder import ROOT, RunFolder, run_name
from runs.study_folder import StudyFolder, StudyRow

REPORT = Path("jobs", "report.sbatch")
# Flags for the cells that say who pays and where; the report takes them too.
_PASSED_ON = ("account", "partition", "qos", "reservation", "clusters")


def overrides_from(changes: Mapping[str, Any]) -> list[str]:
    """Return dotted keys and values as `key=value` overrides."""
    return [f"{name}={dump_value(value)}" for name, value in changes.items()]


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run to submit: the request, its config, where it will go, and the forecast there."""

    source: Path
    overrides: list[str]
    config: Run
    resumes: RunFolder | None
    identity: str
    site: Site
    tree: snapshot.Tree
    flags: Flags
    forecast: dict[str, Any] | None = None

    @property
    def template(self) -> Path:
        """The job file, relative to the tree."""
        return Path("jobs", f"{self.config.kind}.sbatch")

    @property
    def run(self) -> Path:
        """The run's folder, which may not exist yet."""
        if self.resumes:
            return self.resumes.path
        return self.site.logs / f"{run_name(self.source, self.config)}-{self.identity}"

    @property
    def query(self) -> tuple[Path, list[str]]:
        """The config and the overrides to forecast; of a run also those of its attempts."""
        if self.resumes is None:
            return self.source, self.overrides
        file = self.resumes.config_file
        known, now = flatten(read_tree(file)), flatten(to_tree(self.config))
        changes = {name: value for name, value in now.items() if known.get(name) != value}
        return file, overrides_from(changes)


def batch_script(request: RunRequest, run: Path) -> BatchScript:
    """Return the batch script of a request with the run's folder `run`."""
    code = request.tree.folder(request.site.logs)
    own: Flags = {"job-name": run.name}
    changes = request.overrides if request.resumes else []
    return BatchScript(
        flags=_job_flags(request.template, own, request.site.logs, code=code)
        | _resource_flags(request.config.resources)
        | request.site.flags
        | request.flags,
        exports=request.site.exports(),
        command=["bash", str(code / request.template), str(run), *changes],
        check=request.tree.check(request.site.logs),
    )


@dataclass(frozen=True, kw_only=True)
class Array:
    """Runs of a study with one resource shape."""

    shape: str
    kind: str
    resources: Resources
    rows: list[StudyRow]

    @property
    def first(self) -> int:
        """The row of task 0."""
        return self.rows[0].index

    @property
    def template(self) -> Path:
        """The job file, relative to the tree."""
        return Path("jobs", f"{self.kind}.sbatch")


def make_arrays(
    study: StudyFolder, rows: Sequence[StudyRow], *, size: int, configs: Mapping[str, Run]
) -> Iterator[Array]:
    """Yield arrays of at most `size` tasks; `configs` are those of cells without a folder yet."""
    for shape in dict.fromkeys(row.shape for row in rows):
        left = sorted((row for row in rows if row.shape == shape), key=lambda row: row.index)
        while left:
            fit = [row for row in left if row.index - left[0].index < size]
            config = configs.get(fit[0].cell) or RunFolder(study.cell(fit[0].cell)).config()
            yield Array(shape=shape, kind=config.kind, resources=config.resources, rows=fit)
            left = left[len(fit) :]


def array_script(
    array: Array, study: StudyFolder, *, site: Site, tree: snapshot.Tree, throttle: int | None,
    extra: Flags,
) -> BatchScript:  # fmt: skip
    """Return the batch script of an array; each task finds its cell in cells.tsv by its index."""
    code = tree.folder(site.logs)
    tasks = _task_list([row.index - array.first for row in array.rows])
    own: Flags = {
        "job-name": study.path.name,
        "array": tasks + (f"%{throttle}" if throttle else ""),
        "output": "%x-%A_%a.out",
    }
    return BatchScript(
        flags=_job_flags(array.template, own, study.jobs, code=code)
        | _resource_flags(array.resources)
        | site.flags
        | extra,
        exports=site.exports() | {"FIRST_CELL": str(array.first)},
        command=["bash", str(code / array.template), str(study.path)],
        check=tree.check(site.logs),
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
    output = Path(str(own.get("output", flags["output"]))).name
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


def _task_list(indexes: Sequence[int]) -> str:
    """Return ascending indexes as Slurm writes them: `0-3,7`."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and index == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)
