"""`python -m launch preflight`: run every check of a run and print a line for each."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import is_study
from configs.run.study_folder import is_study_folder
from launch.preflight import machine, request, signal_lead, storage, studies
from launch.preflight.check import CheckResult, failure
from launch.preflight.request import Subject, read_subject

# These checks have the same result for all runs of a site.
_MACHINE: tuple[Callable[[Subject], Iterator[CheckResult]], ...] = (
    machine.hidden,
    machine.modules,
    machine.virtualenv,
    storage.logs,
)


def preflight(source: Path, overrides: list[str], *, site_name: str | None) -> int:
    """Print the checks of a config, a run or a study; return 1 if one fails."""
    return show(_results(source, overrides, site_name))


def _results(source: Path, overrides: list[str], site_name: str | None) -> Iterator[CheckResult]:
    try:
        if is_study_folder(source):
            raise ConfigError(f"{source}: a study's folder; name its file, or one of its cells")
        if is_study(source, overrides):
            subjects = studies.read_subjects(source, overrides, site_name=site_name)
            yield from studies.check_cells(subjects)
            yield from _check_machine(subjects.cells[0])
        else:
            yield from checks(read_subject(source, overrides, site_name=site_name))
    except ConfigError as error:
        yield failure("config", str(error))


def _check_machine(subject: Subject) -> Iterator[CheckResult]:
    for check in _MACHINE:
        yield from check(subject)


def checks(subject: Subject) -> Iterator[CheckResult]:
    """Run all checks of one run, those that need the forecast last."""
    for check in (request.batch, request.paths, request.cluster):
        yield from check(subject)
    yield from _check_machine(subject)
    forecast = request.forecast_of(subject)
    for check_forecast in (storage.room, signal_lead.lead, request.gpu_memory):
        yield from check_forecast(subject, forecast)


def show(results: Iterable[CheckResult]) -> int:
    """Print results as they come; return 1 if one is a failure."""
    counts = {"pass": 0, "warn": 0, "fail": 0}
    for result in results:
        print(result, flush=True)
        counts[result.level] += 1
    print(", ".join(f"{number} {level}" for level, number in counts.items()), file=sys.stderr)
    return int(counts["fail"] > 0)
