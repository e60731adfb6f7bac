"""`python -m launch preflight`: every check of a run, one line each as it is answered."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.study_file import is_study
from configs.run.study_folder import is_study_folder
from launch.preflight import forecast, machine, request, signal_lead, storage, studies
from launch.preflight.check import CheckResult, failure
from launch.preflight.subject import Subject, subject

Check = Callable[[Subject], Iterator[CheckResult]]

_ASKED: tuple[Check, ...] = (request.batch, request.paths, request.partition)
# What is alike for all runs of a site.
_MACHINE: tuple[Check, ...] = (
    machine.hidden,
    machine.modules,
    machine.virtualenv,
    storage.logs,
)


def preflight(source: Path, overrides: list[str], *, site_name: str | None) -> int:
    """Print the checks of a config, a run or a study; 1 where one fails."""
    return show(_lines(source, overrides, site_name))


def _lines(source: Path, overrides: list[str], site_name: str | None) -> Iterator[CheckResult]:
    try:
        if is_study_folder(source):
            raise ConfigError(f"{source}: a study's folder; name its file, or one of its cells")
        several = is_study(source, overrides)
        if several:
            yield from studies.lines(source, overrides, site_name=site_name)
            one = studies.a_cell(source, overrides, site_name=site_name)
        else:
            one = subject(source, overrides, site_name=site_name)
    except ConfigError as error:
        yield failure("config", str(error))
        return
    if several:
        for check in _MACHINE:
            yield from check(one)
    else:
        yield from checks(one)


def checks(one: Subject) -> Iterator[CheckResult]:
    """All checks of one run; those that need the forecast come last."""
    for check in (*_ASKED, *_MACHINE):
        yield from check(one)
    outlook = forecast.ask(one)
    for judge in (storage.room, signal_lead.lead, forecast.memory):
        yield from judge(one, outlook)


def show(lines: Iterable[CheckResult]) -> int:
    """Print lines as they come; 1 where one is a failure."""
    counts = {"pass": 0, "warn": 0, "fail": 0}
    for line in lines:
        print(line, flush=True)
        counts[line.level] += 1
    print(", ".join(f"{number} {level}" for level, number in counts.items()), file=sys.stderr)
    return int(counts["fail"] > 0)
