"""GPU memory and hours are forecast."""

import pytest

from configs.load import load
from configs.schema.training import Resources
from launch.plan import memory
from launch.plan.forecast import ForecastAnswer
from tests.launch.conftest import DIGITS, FITS

TIGHT = {
    "fits": False, "reason": "takes 47 GiB of 45", "fix": "train.micro_batch=8",
    "gib": {"peak": 46.0}, "capacity_gib": 45.0,
}  # fmt: skip
LARGE = TIGHT | {"gib": {"peak": 90.0}}


@pytest.mark.parametrize(
    ("gpus", "level", "fix"),
    [
        ({"a40": FITS}, "pass", ""),
        ({"a40": LARGE}, "fail", "train.micro_batch=8"),
        ({"a40": TIGHT}, "warn", "train.micro_batch=8"),
        ({"a40": TIGHT, "h100": FITS}, "warn", "set resources.gpu to one of h100, or"),
        ({}, "warn", ""),
    ],
)
def test_the_memory_of_the_gpu_is_forecast(
    gpus: dict[str, dict[str, object]], level: str, fix: str
) -> None:
    forecast = ForecastAnswer(gpus=gpus, remark="no such GPU")
    line = memory.gpu_memory(Resources(), forecast)
    assert line.level == level
    assert line.fix.startswith(fix)


def test_a_failed_forecast_is_a_warning(real_forecast: None) -> None:
    forecast = memory.forecast_of(load(DIGITS, ["resources.gpu=abacus"]))
    assert "abacus" in forecast.remark


def test_hours_that_are_too_few_even_for_the_fastest_steps_are_a_warning() -> None:
    resources = Resources(hours=1.0)
    step = {"value": 2.0, "low": 1.0, "high": 4.0, "source": "guess"}
    for need, fix in ((1.4, None), (2.8, "resources.hours=3")):
        known = ForecastAnswer(gpus={"a40": FITS | {"hours": need, "step_s": step}})
        assert [line.fix for line in memory.hours(resources, known)] == ([fix] if fix else [])
    assert not [*memory.hours(resources, ForecastAnswer(gpus={"a40": FITS}))]
