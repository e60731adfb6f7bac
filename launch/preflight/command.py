"""`ditbench preflight`: run every check of a run and print a line for each."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import is_study
from launch.forecast import ForecastAnswer
from launch.preflight import machine, memory, signal_lead, storage
from launch.preflight.check import CheckResult, failure, passed, warning
from launch.slurm.client import NoSlurm, Refused
from launch.submit.refusals import Check
from launch.submit.run import Choices, checks_of, run_request
from launch.submit.script import RunRequest
from launch.submit.study import StudyRequest, StudySubmission, study_submission
from runs.study_folder import is_study_folder

Machine = tuple[Callable[[RunRequest], Iterator[CheckResult]], ...]
# These checks have the same result for all runs of a site.
_MACHINE: Machine = (machine.hidden, machine.modules, machine.virtualenv)


def preflight(source: Path, overrides: list[str], *, site_name: str | None, test: bool) -> int:
    """Print the checks of a config, run or study, `test` by a job, too; return 1 if one fails."""
    probes = (*_MACHINE, machine.compute_node) if test else _MACHINE
    return show(_results(source, overrides, site_name, probes))


def _results(
    source: Path, overrides: list[str], site_name: str | None, probes: Machine
) -> Iterator[CheckResult]:
    try:
        if is_study_folder(source):
            raise ConfigError(f"{source}: a study's folder; name its file, or one of its cells")
        if is_study(source, overrides):
            choices = Choices(site_name=site_name, new=True)
            request = StudyRequest(source=source, overrides=overrides, flags={}, choices=choices)
            yield from _of_study(study_submission(request), probes)
        else:
            run = run_request(source, overrides, site_name=site_name, extra={})
            yield from checks(run, probes)
    except ConfigError as error:
        yield failure("config", str(error))


def checks(request: RunRequest, probes: Machine = _MACHINE) -> Iterator[CheckResult]:
    """Run all checks of one run, those that need the forecast last."""
    yield from _of_submission(checks_of(request))
    for check in probes:
        yield from check(request)
    forecast = memory.forecast_of(request)
    yield from storage.room(request, forecast)
    yield from _with_forecast(request, forecast)


def _with_forecast(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    for check in (signal_lead.lead, memory.gpu_memory, memory.hours, memory.host_memory):
        yield from check(request, forecast)


def _of_study(submission: StudySubmission, probes: Machine) -> Iterator[CheckResult]:
    """Check a study as it would be submitted, and the first cell of each resource shape."""
    assert submission.plan is not None
    scripts = submission.scripts()
    yield from _of_submission(submission.checks(scripts))
    rows = list({row.shape: row for row in reversed(submission.todo)}.values())
    requests = [*map(submission.run_request, rows)]
    for row, request in zip(rows, requests, strict=True):
        forecast = submission.plan.forecasts.get(row.cell) or memory.forecast_of(request)
        for result in _with_forecast(request, forecast):
            yield replace(result, message=f"{row.shape}: {result.message}")
    for check in probes:
        for request in requests[:1]:
            yield from check(request)


def _of_submission(found: Sequence[Check]) -> Iterator[CheckResult]:
    """Run the checks of `submit`."""
    for topic, check in found:
        try:
            remarks = check()
        except NoSlurm:
            yield warning(topic, "Slurm not found", "run preflight on a machine with Slurm")
        except (ConfigError, Refused) as error:
            yield failure(topic, str(error))
        else:
            yield warning(topic, "; ".join(remarks)) if remarks else passed(topic, "good")


def show(results: Iterable[CheckResult]) -> int:
    """Print results as they come; return 1 if one is a failure."""
    counts = {"pass": 0, "warn": 0, "fail": 0}
    for result in results:
        print(result, flush=True)
        counts[result.level] += 1
    print(", ".join(f"{number} {level}" for level, number in counts.items()), file=sys.stderr)
    return int(counts["fail"] > 0)
