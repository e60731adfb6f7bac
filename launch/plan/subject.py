"""The subject of `plan`, a run or a study: its checks, table, start and batch scripts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from configs.table import Row
from launch.plan import memory
from launch.plan.checks import forecast_checks, run_checks
from launch.plan.forecast import ForecastAnswer
from launch.plan.measure import measure
from launch.plan.result import CheckResult, checked
from launch.plan.study import shape_of, table
from launch.slurm import client
from launch.slurm.executor import sbatch_text
from launch.submit.run import bill, check_no_job
from launch.submit.script import RunRequest, batch_script
from launch.submit.study import StudySubmission, first_of_shapes


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run; `measures` times its steps first."""

    request: RunRequest
    measures: bool = False
    title = "does it fit?"

    @cached_property
    def forecast(self) -> ForecastAnswer:
        """The forecast of the run on its GPU, or on all that are known."""
        return memory.forecast_of(self.request)

    def checks(self) -> Iterator[CheckResult]:
        """Yield the checks by which `submit` refuses."""
        if self.measures:
            yield measure(self.request)
        yield from run_checks(self.request, self.forecast)
        if resumed := self.request.resumes:
            idle = checked("idle", lambda: check_no_job(resumed))
            yield from [idle] if idle.level == "fail" else []

    def rows(self) -> list[Row]:
        """Return a row for each type of GPU with the memory and the step by the forecast."""
        return [memory.fit_row(name, gpu) for name, gpu in self.forecast.gpus.items()]

    def outlook(self) -> str:
        """Ask the cluster when the run would start."""
        start = client.expected_start(self.scripts()[0])
        return f"it may start about {_date(start)}"

    def bill(self) -> str:
        """Return the most that it costs."""
        return bill(1, self.request.config.resources.gpu_hours)

    def scripts(self) -> list[str]:
        """Return the batch script."""
        return [sbatch_text(batch_script(self.request, self.request.run))]


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study, or the rest of one, as `submit` would queue it."""

    submission: StudySubmission
    title = "cells"

    @cached_property
    def requests(self) -> list[RunRequest]:
        """The requests for the runs."""
        return self.submission.requests()

    def checks(self) -> Iterator[CheckResult]:
        """Yield the checks by which `submit` refuses, and of the first run of each shape."""
        one = self.submission
        yield from one.checks(self.requests)
        choice = checked("choice", one.check_choice)
        yield from [choice] if choice.level == "fail" else []
        known = one.plan.forecasts if one.plan else {}
        for request in first_of_shapes(self.requests):
            forecast = known.get(request.identity) or memory.forecast_of(request)
            shape = shape_of(request.config.resources)
            for result in forecast_checks(request, forecast):
                yield replace(result, message=f"{shape}: {result.message}")

    def rows(self) -> list[Row]:
        """Return a row for each cell."""
        return table(self.submission.plan) if self.submission.plan else []

    def outlook(self) -> str:
        """Ask the cluster when the first run starts: how many go on at once is unknown."""
        one = self.submission
        if not one.todo:
            return "nothing to run: no run is missing or failed"
        starts = [client.expected_start(text) for text in self._job_texts()]
        first = _date(min(filter(None, starts), default=None))
        fewer = "; stop: decided may need fewer runs" if one.settings.stop else ""
        return f"the first run may start about {first}{fewer}"

    def bill(self) -> str:
        """Return the remarks on the order of runs, and the most that they cost."""
        remarks = self.submission.plan.remarks if self.submission.plan else []
        return "\n".join([*remarks, self.submission.bill(self.requests)])

    def scripts(self) -> list[str]:
        """Return the batch scripts of one run of each shape and of the report."""
        settings = self.submission.settings
        report = [self.submission.report_script(["JOBS"])] if settings.report else []
        return [*self._job_texts(), *map(sbatch_text, report)]

    def _job_texts(self) -> list[str]:
        first = first_of_shapes(self.requests)
        return [sbatch_text(batch_script(one, one.run)) for one in first]


def _date(when: float | None) -> str:
    return f"{datetime.fromtimestamp(when):%d %b %H:%M}" if when else "unknown"
