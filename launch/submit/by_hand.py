"""The commands that submit the runs of an array without the launcher, a line each."""

import shlex
from collections.abc import Iterator

from configs.run.folder import ROOT
from configs.yaml12 import dump_value
from launch.slurm.executor import BatchScript
from launch.slurm.flags import spell, template_flags
from launch.submit.array import Array
from launch.submit.plan import Plan

# What belongs to the launcher's own way of submitting.
_OURS = ("job-name", "chdir", "output", "array")


def cells_by_hand(array: Array, plan: Plan | None, script: BatchScript) -> Iterator[str]:
    """A line per run: the study's base with the cell's keys, or the folder that there is."""
    known = template_flags(ROOT / array.template)
    flags = {
        name: value
        for name, value in script.flags.items()
        if name not in _OURS and known.get(name) != value
    }
    site = ["env", f"SITE={script.exports['SITE']}", "sbatch", *spell(flags), str(array.template)]
    changes = {run.name: run.cell.changes for run in plan.runs} if plan else {}
    for row in array.rows:
        if plan is None or row.cell not in changes:
            yield shlex.join([*site, f"{script.command[-1]}/cells/{row.cell}"])
            continue
        words = [f"{name}={dump_value(value)}" for name, value in changes[row.cell].items()]
        yield shlex.join([*site, str(plan.grid.study.base), *words])
