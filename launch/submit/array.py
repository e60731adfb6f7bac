"""The jobs of a study: an array per resource shape, and a report when all have ended."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.run.folder import RunFolder
from configs.run.study_folder import StudyFolder, StudyRow
from configs.schema import Run
from configs.schema.training import Resources
from launch.slurm.executor import BatchScript
from launch.slurm.flags import Flags
from launch.submit import snapshot
from launch.submit.script import job_flags, resource_flags
from launch.submit.site import Site

REPORT = Path("jobs", "report.sbatch")
# Of the flags given for the cells, those that say who pays and where.
_PASSED_ON = ("account", "partition", "qos", "reservation", "clusters")


@dataclass(frozen=True, kw_only=True)
class Array:
    """Runs of one resource shape; task 0 would be the row `first`."""

    shape: str
    kind: str
    resources: Resources
    rows: list[StudyRow]

    @property
    def first(self) -> int:
        """The row that task 0 is, or would be."""
        return self.rows[0].index

    @property
    def template(self) -> Path:
        """The job's file, in the tree."""
        return Path("jobs", f"{self.kind}.sbatch")


def arrays_of(
    study: StudyFolder, rows: Sequence[StudyRow], *, size: int, configs: Mapping[str, Run]
) -> Iterator[Array]:
    """The arrays that run these rows, none with an index beyond the cluster's array `size`.

    `configs` are those of cells that may have no folder yet.
    """
    for shape in dict.fromkeys(row.shape for row in rows):
        mine = sorted((row for row in rows if row.shape == shape), key=lambda row: row.index)
        while mine:
            fit = [row for row in mine if row.index - mine[0].index < size]
            config = configs.get(fit[0].cell) or RunFolder(study.cell(fit[0].cell)).config()
            yield Array(shape=shape, kind=config.kind, resources=config.resources, rows=fit)
            mine = mine[len(fit) :]


def array_script(
    array: Array, study: StudyFolder, *, site: Site, tree: snapshot.Tree, throttle: int | None,
    extra: Flags,
) -> BatchScript:  # fmt: skip
    """The batch script of an array: each task finds its cell in cells.tsv by its index."""
    code = tree.folder(site.logs)
    tasks = spell_tasks([row.index - array.first for row in array.rows])
    own: Flags = {
        "job-name": study.path.name,
        "array": tasks + (f"%{throttle}" if throttle else ""),
        "output": "%x-%A_%a.out",
    }
    return BatchScript(
        flags=job_flags(array.template, own, site, code=code)
        | resource_flags(array.resources)
        | site.flags
        | extra,
        exports=site.exports() | {"FIRST_CELL": str(array.first)},
        command=["bash", str(code / array.template), str(study.path)],
    )


def report_script(
    study: StudyFolder, *, after: Sequence[str], site: Site, tree: snapshot.Tree, extra: Flags
) -> BatchScript:
    """The batch script of the report on a study, once the jobs `after` have ended, however."""
    code = tree.folder(site.logs)
    own: Flags = {"job-name": study.path.name, "dependency": f"afterany:{':'.join(after)}"}
    flags = job_flags(REPORT, own, site, code=code)
    passed_on: Flags = {name: extra[name] for name in _PASSED_ON if name in extra}
    return BatchScript(
        flags=flags | site.flags | passed_on,
        exports=site.exports(),
        command=["bash", str(code / REPORT), str(study.path)],
    )


def spell_tasks(indexes: Sequence[int]) -> str:
    """Ascending indexes as Slurm takes them: `0-3,7`."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and index == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)
