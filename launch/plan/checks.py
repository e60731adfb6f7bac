"""The checks of a run before it is submitted: `plan` prints them, `submit` refuses by them."""

from collections.abc import Iterator

from configs.checks.aitoolkit import remarks
from configs.checks.batch import check_ranks
from configs.schema import Finetune
from launch.plan import memory
from launch.plan.forecast import ForecastAnswer
from launch.plan.result import CheckResult, checked
from launch.slurm import limits
from launch.submit.script import RunRequest, batch_script
from launch.submit.site import check_site
from runs.checks.paths import check_paths


def run_checks(request: RunRequest, forecast: ForecastAnswer | None) -> Iterator[CheckResult]:
    """Check data, batch and site; with a forecast also the cluster, memory and hours."""
    config, resumed = request.config, request.resumes
    engine = resumed.engine() if resumed else None
    yield checked("data", lambda: _check_data(request))
    world = config.resources.world
    yield checked("batch", lambda: check_ranks(config, world=world, engine=engine))
    yield checked("site", lambda: check_site(request.site))
    if forecast is not None:
        yield checked("cluster", lambda: limits.check(batch_script(request, request.run)))
        yield from forecast_checks(request, forecast)


def _check_data(request: RunRequest) -> list[str]:
    check_paths(request.config)
    return [*remarks(request.config)] if isinstance(request.config, Finetune) else []


def forecast_checks(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check the memory and the hours of a run by its forecast."""
    yield from memory.gpu_memory(request, forecast)
    yield from memory.hours(request, forecast)
