"""The subject of `plan`, a run or a study: its checks, table, outlook and batch scripts.

`checks` are those by which `submit` refuses. `slow_checks` take seconds and are of the site: its
modules, its torch, and with `test` a node, by a short job.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.table import Row
from launch.plan import machine, memory
from launch.plan.checks import forecast_checks, run_checks
from launch.plan.forecast import ForecastAnswer
from launch.plan.measure import measure
from launch.plan.outlook import Outlook, run_outlook, study_outlook
from launch.plan.result import CheckResult, checked
from launch.plan.study import table, to_json
from launch.slurm.executor import sbatch_text
from launch.submit.run import check_idle
from launch.submit.script import RunRequest, batch_script, sbatch_command
from launch.submit.study import ArrayScript, StudySubmission


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run; `site_name` and `new` are the flags of `submit`; `measures` times its steps first."""

    request: RunRequest
    site_name: str | None
    new: bool
    measures: bool = False
    title = "does it fit?"

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

    def slow_checks(self, *, test: bool) -> Iterator[CheckResult]:
        """Yield the checks of the site."""
        return machine.site_checks(self.request, test=test)

    def rows(self) -> list[Row]:
        """Return a row for each type of GPU with the memory and the step by the forecast."""
        return [memory.fit_row(name, gpu) for name, gpu in self.forecast.gpus.items()]

    def outlook(self, rates: Path | None) -> Outlook:
        """Ask the cluster where, when and for how much."""
        return run_outlook(self.request, rates=rates, site_name=self.site_name)

    def bill(self) -> str:
        """Return the most that it costs."""
        return f"1 run, at most {self.request.config.resources.gpu_hours:g} GPU-hours"

    def scripts(self) -> list[str]:
        """Return the batch script, and the command for the checkout instead of a snapshot."""
        same = textwrap.indent(sbatch_command(self.request), "# ", lambda line: True)
        script = sbatch_text(batch_script(self.request, self.request.run))
        return [script, f"# Equivalent command, for the checkout instead of a snapshot:\n{same}"]

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as data."""
        return {"fits": self.forecast.gpus, "parameters": self.forecast.parameters}


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study, or the rest of one, as `submit` would queue it."""

    submission: StudySubmission
    site_name: str | None
    title = "cells"

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

    def slow_checks(self, *, test: bool) -> Iterator[CheckResult]:
        """Yield the checks of the site."""
        for row in self.submission.todo[:1]:
            yield from machine.site_checks(self.submission.run_request(row), test=test)

    def rows(self) -> list[Row]:
        """Return a row for each cell."""
        return table(self.submission.plan) if self.submission.plan else []

    def outlook(self, rates: Path | None) -> Outlook:
        """Ask the cluster where, when and for how much."""
        return study_outlook(self.submission, rates=rates, site_name=self.site_name)

    def bill(self) -> str:
        """Return the remarks on the order of runs, and the most that they cost."""
        remarks = self.submission.plan.remarks if self.submission.plan else []
        return "\n".join([*remarks, self.submission.bill(self.arrays)])

    def scripts(self) -> list[str]:
        """Return the batch scripts of the arrays, and of the report."""
        one = self.submission
        report = [one.report_script(["JOB"] * len(self.arrays))] if one.settings.report else []
        return [sbatch_text(script) for script in [*(each for _, each in self.arrays), *report]]

    def to_json(self) -> dict[str, Any]:
        """Return the study, its cells and its arrays as data."""
        return to_json(self.submission.plan) if self.submission.plan else {}
