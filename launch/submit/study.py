"""Submit a study, or what is missing of one: an array per resource shape, then the report."""

import shlex
import sys
import textwrap
from collections.abc import Sequence

from configs.run.folder import RunFolder
from launch.slurm import client, executor, limits
from launch.slurm.client import Refused
from launch.slurm.executor import BatchScript
from launch.status import submitted_jobs
from launch.submit import snapshot
from launch.submit.array import REPORT, Array, array_script, arrays_of, report_script
from launch.submit.by_hand import cells_by_hand
from launch.submit.study_cells import make_folder, record, withdraw
from launch.submit.study_request import StudyRequest, StudySubmission, study_submission


def submit_study(wish: StudyRequest, *, how: str) -> int:
    """Submit, start here, or only print what of a study is to be run; 0 where that was done."""
    errand = study_submission(wish)
    if not errand.todo:
        print(f"study: {errand.study.path}")
        print("nothing is missing, nothing has failed", file=sys.stderr)
        return 0
    {"slurm": _queue, "local": _start, "dry": _show}[how](errand)
    return 0


def _show(errand: StudySubmission) -> None:
    arrays = _future_arrays(errand)
    for array in arrays:
        print(executor.sbatch_text(_script(errand, array)))
    if errand.settings.report:
        print(executor.sbatch_text(_report(errand, ["JOB"] * len(arrays))))
    print("# The same by hand, of the checkout instead of a snapshot of it, a run each:")
    for array in arrays:
        for line in cells_by_hand(array, errand.plan, _script(errand, array)):
            print(textwrap.indent(line, "# ", lambda line: True))


def _future_arrays(errand: StudySubmission) -> list[Array]:
    """The arrays, of which no folder need be there."""
    planned = errand.plan.runs if errand.plan else []
    configs = {run.name: run.cell.config for run in planned}
    size = client.array_size()
    return list(arrays_of(errand.study, errand.todo, size=size, configs=configs))


def _script(errand: StudySubmission, array: Array) -> BatchScript:
    return array_script(
        array,
        errand.study,
        site=errand.sites.of(array.resources),
        tree=errand.tree,
        throttle=errand.settings.throttle,
        extra=errand.flags,
    )


def _report(errand: StudySubmission, after: Sequence[str]) -> BatchScript:
    return report_script(
        errand.study, after=after, site=errand.sites.plain(), tree=errand.tree, extra=errand.flags
    )


def _queue(errand: StudySubmission) -> None:
    arrays = _future_arrays(errand)
    scripts = [_script(errand, array) for array in arrays]
    known = client.partitions()
    remarks = [
        remark
        for script in scripts
        for remark in limits.check(script.flags, executor.sbatch_text(script), known=known)
    ]
    _prepare(errand)
    print(f"study: {errand.study.path}")
    jobs: list[str] = []
    for number, (array, script) in enumerate(zip(arrays, scripts, strict=True)):
        try:
            job = executor.submit(script)
        except (Refused, OSError):
            left = [row for later in arrays[number:] for row in later.rows]
            withdraw(errand.study, left, is_new=errand.is_new and not jobs)
            raise
        rows = [row.index for row in array.rows]
        text = executor.sbatch_text(script)
        submitted_jobs.keep_array(errand.study, job, text, first=array.first, rows=rows)
        jobs.append(job)
        print(f"array: {job} ({len(rows)} runs, {array.shape})")
    quoted = shlex.quote(str(errand.study.path))
    if errand.settings.report:
        try:
            print(f"report: {executor.submit(_report(errand, jobs))}")
        except Refused as error:
            remarks.append(f"no report is queued: {error}\nmake it: bash {REPORT} {quoted}")
    remarks.append(f"look at it: python -m launch status {quoted}")
    print("\n".join(dict.fromkeys(remarks)), file=sys.stderr)


def _prepare(errand: StudySubmission) -> None:
    """The snapshot, the folder with its cells, and the event that begins their wait."""
    snapshot.keep(errand.tree, errand.sites.plain().logs)
    if errand.plan is not None:
        make_folder(errand.study, errand.plan, errand.rows)
    errand.study.stop_file.unlink(missing_ok=True)
    for row in errand.todo:
        record(RunFolder(errand.study.cell(row.cell)), "queued")


def _start(errand: StudySubmission) -> None:
    executor.check_folder(errand.study.path)
    _prepare(errand)
    kinds = {RunFolder(errand.study.cell(row.cell)).config().kind for row in errand.todo[:1]}
    listed = errand.study.jobs / "local.txt"
    names = [row.cell for row in sorted(errand.todo, key=lambda row: row.order)]
    listed.write_text("\n".join(names) + "\n", encoding="utf-8")
    code = errand.tree.folder(errand.sites.plain().logs)
    script = BatchScript(
        flags={},
        exports=errand.sites.plain().exports(),
        command=["bash", str(code / "jobs/cells.sh"), str(errand.study.path), *kinds, str(listed)],
    )
    pid = executor.start_here(script, errand.study.jobs)
    listed.with_name(f"{pid}.cells").touch()
    print(f"study: {errand.study.path}\nprocess: {pid}")
    quoted = shlex.quote(str(errand.study.path))
    print(f"look at it: python -m launch status {quoted}", file=sys.stderr)
