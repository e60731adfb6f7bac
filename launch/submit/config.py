"""Submit runs of configs by a batch script each: one run, or what is left of a study."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

from configs.checks.aitoolkit import remarks
from configs.checks.batch import check_ranks
from configs.errors import ConfigError
from configs.load import to_tree
from configs.schema import Finetune, Study
from configs.table import Row
from launch.plan import memory
from launch.plan.forecast import ForecastAnswer
from launch.plan.measure import measure
from launch.plan.result import CheckResult, checked
from launch.plan.study import Plan, shape_of, table
from launch.slurm import client, executor, history, limits
from launch.slurm.client import Refused
from launch.slurm.executor import BatchScript, sbatch_text
from launch.slurm.flags import Flags
from launch.submit import snapshot
from launch.submit.local import check_no_job, check_no_process, list_cells, start_cells
from launch.submit.script import REPORT, RunRequest, batch_script, report_script
from launch.submit.site import Site, check_site
from launch.submit.study_cells import NOTHING_LEFT, make_folder, record_queued
from launch.submit.submission import Choices, bill
from runs.checks.paths import check_paths
from runs.folder import RunFolder, make_run, run_name
from runs.jobs import save_script, scripts_folder
from runs.state.fold import is_done
from runs.study_folder import StudyFolder, StudyRow


@dataclass(frozen=True, kw_only=True)
class StudyLeft:
    """A study of which runs are left; `plan` is None if its folder is continued unchanged."""

    folder: StudyFolder
    settings: Study
    plan: Plan | None
    rows: list[StudyRow]


@dataclass(frozen=True, kw_only=True)
class ConfigSubmission:
    """The requests for runs in the order of their submission, one alone or those of a study.

    `site` has the flags of a run alone, or of a job without GPUs, such as a study's report.
    `measures` times the steps of a run first.
    """

    choices: Choices
    folder: Path
    is_new: bool
    requests: list[RunRequest]
    site: Site
    tree: snapshot.Tree
    study: StudyLeft | None = None
    measures: bool = False

    @property
    def is_study(self) -> bool:
        """Whether the runs are those of a study."""
        return self.study is not None

    @property
    def title(self) -> str:
        """The title of the table of a plan."""
        return "cells" if self.study else "does it fit?"

    @cached_property
    def _forecasts(self) -> dict[str, ForecastAnswer]:
        """The forecast of the first run of each shape; of planned cells it is known."""
        known = self.study.plan.forecasts if self.study and self.study.plan else {}
        return {
            one.identity: known.get(one.identity) or memory.forecast_of(one.config)
            for one in first_of_shapes(self.requests)
        }

    def finished(self) -> str:
        """Return why nothing is left to run; empty if something is."""
        if self.study:
            return "" if self.requests else NOTHING_LEFT
        (one,) = self.requests
        is_over = one.resumes and is_done(one.resumes, one.config)
        return f"{one.source}: already done; raise train.steps to continue" if is_over else ""

    def check_idle(self) -> None:
        """Raise `Refused` if runs go on already, or if their turns need a session."""
        if self.study is None:
            resumed = self.requests[0].resumes
            if resumed and self.choices.how != "local":
                check_no_job(resumed)
            return
        if self.study.settings.interleave and self.choices.how == "slurm":
            raise Refused(
                "interleave: runs take turns in one allocation, not in jobs; submit with --local "
                "(on a cluster in the session of env/interactive.sh), or set interleave=null"
            )
        check_no_process(self.study.folder)

    def checks(self) -> Iterator[CheckResult]:
        """Check data, batch and site; with Slurm also a job of each shape, its memory and hours."""
        if self.measures:
            yield measure(self.requests[0])
        yield checked("data", lambda: self._check_each(_check_data))
        yield checked("batch", lambda: self._check_each(_check_batch))
        yield checked("site", lambda: check_site(self.site))
        if self.choices.how == "local":
            return
        partitions, shapes = cache(client.partitions), first_of_shapes(self.requests)
        for one in shapes:
            script = batch_script(one, one.run)
            yield checked("cluster", partial(limits.check, script, partitions=partitions))
        for one in shapes:
            resources = one.config.resources
            where = f"{shape_of(resources)}: " if self.study else ""
            for result in memory.checks(resources, self._forecasts[one.identity]):
                yield replace(result, message=where + result.message)

    def _check_each(self, check: Callable[[RunRequest], Iterable[str]]) -> list[str]:
        """Return the remarks of a check of each config; an error names its cell."""
        found, seen = dict[str, None](), set[str]()
        for one in self.requests:
            if repr(one.config) in seen:
                continue
            seen.add(repr(one.config))
            try:
                found |= dict.fromkeys(check(one))
            except ConfigError as error:
                cell = f"cell {one.identity}: " if self.study else ""
                raise ConfigError(f"{cell}{error}") from None
        return list(found)

    def rows(self) -> list[Row]:
        """Return a row for each cell, or for each GPU on which a run may fit."""
        if self.study:
            return table(self.study.plan) if self.study.plan else []
        (forecast,) = self._forecasts.values()
        return [memory.fit_row(name, gpu) for name, gpu in forecast.gpus.items()]

    def bill(self) -> str:
        """Return the remarks on the order of runs, their number, and the most that they cost."""
        hours = sum(one.config.resources.gpu_hours for one in self.requests)
        remarks = self.study.plan.remarks if self.study and self.study.plan else []
        return "\n".join([*remarks, bill(len(self.requests), hours)])

    def outlook(self) -> str:
        """Ask the cluster when the first run starts: how many go on at once is unknown."""
        if finished := self.finished():
            return finished
        starts = [client.expected_start(text) for text in self._job_texts()]
        first = min(filter(None, starts), default=None)
        date = history.clock(first) if first else "unknown"
        may_stop = self.study and self.study.settings.stop
        fewer = "; stop: decided may need fewer runs" if may_stop else ""
        return f"{'the first run' if self.study else 'it'} may start about {date}{fewer}"

    def scripts(self) -> list[str]:
        """Return the batch scripts of one run of each shape and of a study's report."""
        is_reported = self.study and self.study.settings.report
        report = [sbatch_text(self._report(["JOBS"]))] if is_reported else []
        return [*self._job_texts(), *report]

    def _job_texts(self) -> list[str]:
        first = first_of_shapes(self.requests)
        return [sbatch_text(batch_script(one, one.run)) for one in first]

    def _report(self, after: Sequence[str]) -> BatchScript:
        assert self.study is not None
        extra = self.requests[0].flags if self.requests else {}
        return report_script(
            self.study.folder, after=after, site=self.site, tree=self.tree, extra=extra
        )

    def prepare(self) -> list[RunFolder]:
        """Make the snapshot and the folders, and record that the runs are queued."""
        snapshot.save(self.tree, self.site.logs)
        if self.study:
            if self.study.plan is not None:
                make_folder(self.study.folder, self.study.plan, self.study.rows)
            self.study.folder.stop_file.unlink(missing_ok=True)
            runs = [RunFolder(one.run) for one in self.requests]
        else:
            (one,) = self.requests
            name, tree = run_name(one.source, one.config), to_tree(one.config)
            runs = [one.resumes or make_run(name, tree, identity=one.identity)]
        for run in runs:
            record_queued(run)
        return runs

    def queue(self, run: RunFolder, jobs: Sequence[str]) -> str:
        """Queue a run after the `jobs` of those before it; return its job."""
        script = batch_script(self.requests[len(jobs)], run.path)
        if self.study and (most := self.study.settings.throttle):
            script = _in_line(script, len(jobs) % most)
        job = executor.submit(script)
        try:
            save_script(run, job, sbatch_text(script))
        except OSError:
            client.cancel(job)
            raise
        return job

    def start(self, runs: Sequence[RunFolder]) -> int:
        """Start the body of a run's job here, or one cell of a study after another."""
        if self.study is None:
            script = batch_script(self.requests[0], runs[0].path)
            environment = executor.local_environment(script.exports)
            folder = scripts_folder(runs[0])
            return executor.start_detached(script.command, folder, environment=environment)
        names = [one.identity for one in self.requests]
        lines = list_cells(self.study.folder, names, self.study.settings)
        return start_cells(
            self.study.folder, lines, self.requests[0].config.kind,
            code=self.tree.folder(self.site.logs),
            environment=executor.local_environment(self.site.exports()),
        )  # fmt: skip

    def follow_up(self, jobs: Sequence[str]) -> list[str]:
        """Queue a study's report; return remarks on it, and on variables that were ignored."""
        hidden = [name for name in client.conflicting_variables() if name.startswith("SBATCH_")]
        fix = "ignored; give flags after --, or in the site file"
        remarks = [f"{', '.join(hidden)}: {fix}"] if hidden else []
        if self.study and self.study.settings.report:
            try:
                print(f"report: {executor.submit(self._report(jobs))}")
            except Refused as error:
                make_it = f"bash {REPORT} {shlex.quote(str(self.folder))}"
                remarks.append(f"no report is queued: {error}\nmake it with: {make_it}")
        return remarks


def first_of_shapes(requests: Sequence[RunRequest]) -> list[RunRequest]:
    """Return the first run of each kind and shape: the jobs of the others only have other names."""
    return [*{(one.config.kind, one.config.resources): one for one in reversed(requests)}.values()]


def _in_line(script: BatchScript, number: int) -> BatchScript:
    """Return the script of a job that waits for those before it in one of a study's lines.

    Of jobs with one name and this dependency Slurm runs one at a time.
    """
    awaited = script.flags.get("dependency")
    name = f"{script.flags['job-name']}-{number}"
    after = f"{awaited},singleton" if awaited else "singleton"
    own: Flags = {"job-name": name, "dependency": after}
    return replace(script, flags=script.flags | own)


def _check_data(request: RunRequest) -> Iterable[str]:
    check_paths(request.config)
    return remarks(request.config) if isinstance(request.config, Finetune) else ()


def _check_batch(request: RunRequest) -> Iterable[str]:
    engine = request.resumes.engine() if request.resumes else None
    check_ranks(request.config, world=request.config.resources.world, engine=engine)
    return ()
