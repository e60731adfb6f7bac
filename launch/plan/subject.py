"""The subject of `plan`, a run or a study: its checks, table, outlook and batch scripts."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from configs.load import merge, resolve, to_tree
from configs.table import Row
from configs.terminal import plural
from launch.plan import memory
from launch.plan.checks import forecast_checks, run_checks
from launch.plan.forecast import ForecastAnswer
from launch.plan.measure import measure
from launch.plan.outlook import date, in_words, placements
from launch.plan.result import CheckResult, checked
from launch.plan.study import table
from launch.script.submission import ScriptSubmission
from launch.slurm import client
from launch.slurm.executor import sbatch_text
from launch.slurm.flags import to_words
from launch.submit.run import check_idle
from launch.submit.script import RunRequest, batch_script, overrides_from
from launch.submit.site import read_site
from launch.submit.study import ArrayScript, StudyRequest, StudySubmission
from runs.folder import ROOT

# Rows, and the advice that follows from them.
Outlook = tuple[list[Row], str]


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run; `site_name` and `new` are the flags of `submit`; `measures` times its steps first."""

    request: RunRequest
    site_name: str | None
    new: bool
    measures: bool = False
    title, key = "does it fit?", "fits"

    @cached_property
    def forecast(self) -> ForecastAnswer:
        """The forecast of the run on its GPU, or on all that are known."""
        return memory.forecast_of(self.request)

    def checks(self) -> Iterator[CheckResult]:
        """Yield the checks by which `submit` refuses."""
        if self.measures:
            yield from measure(self.request)
        yield from run_checks(self.request, self.forecast)
        idle = checked("idle", lambda: check_idle(self.request, new=self.new))
        yield from [idle] if idle.level == "fail" else []

    def rows(self) -> list[Row]:
        """Return a row for each type of GPU with the memory and the step by the forecast."""
        return [memory.fit_row(name, gpu) for name, gpu in self.forecast.gpus.items()]

    def outlook(self) -> Outlook:
        """Ask the cluster when, on each of its types if the config names none."""
        found = placements(self._requests())
        request, row = found[0]
        rows = [one for _, one in found]
        if "finish" not in row:
            return rows, "no finish time can be forecast here"
        words = "first done: {shape}, about {finish} ({finish_low} to {finish_high})"
        return (
            rows,
            f"{words.format_map(in_words(row))}; queue it: {_submit(request, self.site_name)}",
        )

    def _requests(self) -> list[RunRequest]:
        """Return the request on each type of GPU of the cluster if the config names none."""
        resources = self.request.config.resources
        partition = (self.request.site.flags | self.request.flags).get("partition")
        found = client.gpus(str(partition) if partition else None)
        is_open = resources.gpus_per_node and not resources.gpu
        return [self._on(gpu) for gpu in found if gpu and is_open] or [self.request]

    def _on(self, gpu: str) -> RunRequest:
        """Return the request on a type of GPU."""
        request, change = self.request, {"resources.gpu": gpu}
        config = resolve(merge(to_tree(request.config), change), source=str(request.source))
        site = read_site(ROOT, config.resources, name=self.site_name)
        words = [*request.overrides, *overrides_from(change)]
        return replace(request, config=config, site=site, overrides=words)

    def bill(self) -> str:
        """Return the most that it costs."""
        return f"1 run, at most {self.request.config.resources.gpu_hours:g} GPU-hours"

    def scripts(self) -> list[str]:
        """Return the batch script."""
        return [sbatch_text(batch_script(self.request, self.request.run))]


@dataclass(frozen=True, kw_only=True)
class ScriptPlan:
    """A batch script of the user's, as one run or as the runs of a study."""

    submission: ScriptSubmission
    site_name: str | None
    title = key = "runs"

    def checks(self) -> Iterator[CheckResult]:
        """Yield the checks by which `submit` refuses."""
        return self.submission.checks()

    def rows(self) -> list[Row]:
        """Return a row for each run of a study."""
        return table(self.submission.plan) if self.submission.plan else []

    def outlook(self) -> Outlook:
        """Return the order: how long a script takes is unknown."""
        plan = self.submission.plan
        return [], "\n".join(plan.remarks if plan else ["how long the script takes is unknown"])

    def bill(self) -> str:
        """Return the most that it costs."""
        return self.submission.bill()

    def scripts(self) -> list[str]:
        """Return the flags that are added, and each copy as a diff."""
        return self.submission.shown()


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study, or the rest of one, as `submit` would queue it."""

    submission: StudySubmission
    site_name: str | None
    title = key = "cells"

    @cached_property
    def arrays(self) -> list[ArrayScript]:
        """The arrays with their batch scripts."""
        return self.submission.scripts()

    def checks(self) -> Iterator[CheckResult]:
        """Yield the checks by which `submit` refuses, and those of the first cell of each shape."""
        one = self.submission
        yield from one.checks(self.arrays)
        choice = checked("choice", one.check_choice)
        yield from [choice] if choice.level == "fail" else []
        known = one.plan.forecasts if one.plan else {}
        for row in {row.shape: row for row in reversed(one.todo)}.values():
            request = one.run_request(row)
            forecast = known.get(row.cell) or memory.forecast_of(request)
            for result in forecast_checks(request, forecast):
                yield replace(result, message=f"{row.shape}: {result.message}")

    def rows(self) -> list[Row]:
        """Return a row for each cell."""
        return table(self.submission.plan) if self.submission.plan else []

    def outlook(self) -> Outlook:
        """Ask the cluster when the first array starts: how many runs go on at once is unknown."""
        one = self.submission
        if not one.todo:
            return [], "nothing to run: no run is missing or failed, or none fits"
        starts = [client.expected_start(sbatch_text(script)) for _, script in self.arrays]
        first = date(min(filter(None, starts), default=None))
        said = f"the first of {plural(len(starts), 'array')} starts about {first}"
        said += "; stop: decided may need fewer runs" if one.settings.stop else ""
        return [], f"{said}; queue it: {_submit(one.request, self.site_name)}"

    def bill(self) -> str:
        """Return the remarks on the order of runs, and the most that they cost."""
        remarks = self.submission.plan.remarks if self.submission.plan else []
        return "\n".join([*remarks, self.submission.bill(self.arrays)])

    def scripts(self) -> list[str]:
        """Return the batch scripts of the arrays, and of the report."""
        one = self.submission
        report = [one.report_script(["JOB"] * len(self.arrays))] if one.settings.report else []
        return [sbatch_text(script) for script in [*(each for _, each in self.arrays), *report]]


def _submit(request: RunRequest | StudyRequest, site_name: str | None) -> str:
    where = to_words(request.flags | ({"site": site_name} if site_name else {}))
    return f"ditbench submit {shlex.join([str(request.source), *request.overrides, *where])}"
