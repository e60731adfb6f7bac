"""A time is certain only if its unit and its meaning are, by its name or by another clock."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis.measure.rate import MeasuredRate, measure_rate
from analysis.read.find import read_logs
from analysis.read.options import parse_options, reading_with

EVERY, ROWS, STEPS_PER_S = 10, 60, 2.0

# What is printed of the seconds of a step and of those since the start.
Print = Callable[[float, float], float]


def planted(path: Path, columns: dict[str, Print], *, rename: str | None = None) -> MeasuredRate:
    """Return the rate of a table with such columns, or of a text if the suffix is `.log`."""
    step_s = np.random.default_rng(0).normal(1, 0.01, ROWS) / STEPS_PER_S
    passed = np.cumsum(EVERY * step_s)
    lines = [] if path.suffix == ".log" else [",".join(["step", "loss", *columns])]
    for row in range(ROWS):
        cells = [f"{EVERY * (row + 1)}", f"{3 / (row + 1):.4f}"]
        cells += [f"{shown(step_s[row], passed[row]):.12g}" for shown in columns.values()]
        if path.suffix == ".log":
            names = ["step", "loss", *columns]
            lines.append(" ".join(map(" ".join, zip(names, cells, strict=True))))
        else:
            lines.append(",".join(cells))
    path.write_text("\n".join(lines))
    with reading_with(parse_options(pattern=None, columns=rename, facts=[])):
        [log] = read_logs([str(path)])
    return measure_rate(log, clock=None)


@pytest.mark.parametrize("suffix", ["csv", "log"])
@pytest.mark.parametrize("unit", [1.0, 1e3, 1 / 60])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("step_time", lambda step, _: step),
        ("iter_time", lambda step, _: step),
        ("elapsed", lambda _, passed: passed),
        ("elapsed_time", lambda _, passed: passed),
        ("time", lambda _, passed: passed),
    ],
)
def test_a_time_without_a_unit_has_no_interval(name, shown, unit, suffix, tmp_path):
    rate = planted(tmp_path / f"x.{suffix}", {name: lambda *times: unit * shown(*times)})
    assert rate.rate.value == pytest.approx(STEPS_PER_S / unit, rel=0.02)
    assert rate.rate.low is None
    assert "no unit" in rate.why_undetermined


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("step_time_ms", lambda step, _: 1e3 * step),
        ("step_s", lambda step, _: step),
        ("iter_s", lambda step, _: step),
        ("batch_sec", lambda step, _: step),
        ("step/s", lambda step, _: 1 / step),
        ("steps_s", lambda step, _: 1 / step),
        ("elapsed_s", lambda _, passed: passed),
        ("time_s", lambda _, passed: passed),
        ("wall time (sec)", lambda _, passed: passed),
        ("elapsed_minutes", lambda _, passed: passed / 60),
        ("train_s", lambda _, passed: passed),
        ("_runtime", lambda _, passed: passed),
        ("ts", lambda _, passed: 1e3 * (1.7e9 + passed)),
    ],
)
def test_a_name_with_a_unit_is_certain(name, shown, tmp_path):
    rate = planted(tmp_path / "x.csv", {name: shown})
    assert rate.rate.value == pytest.approx(STEPS_PER_S, rel=0.02)
    assert rate.rate.low is not None


@pytest.mark.parametrize("name", ["elapsed_s", "train_s", "runtime"])
@pytest.mark.parametrize("suffix", ["csv", "log"])
def test_a_time_that_does_not_rise_did_not_pass_since_the_start(name, suffix, tmp_path):
    rate = planted(tmp_path / f"x.{suffix}", {name: lambda step, _: EVERY * step})
    assert rate.rate is None
    assert "may be that of a step or of 10 steps" in rate.log.uncertain["time"]


def test_a_renamed_column_keeps_the_unit_of_its_own_name(tmp_path):
    for own, unit in (("dur_ms", 1e3), ("dur_min", 1 / 60), ("dur", 1.0)):
        rate = planted(
            tmp_path / "x.csv",
            {own: lambda step, _, unit=unit: unit * step},
            rename=f"step_s={own}",
        )
        assert rate.rate.value == pytest.approx(STEPS_PER_S, rel=0.02)
        assert rate.rate.low is not None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_times_that_are_not_finite_are_none(value, tmp_path):
    columns = {"time": lambda *_: value, "elapsed": lambda *_: value}
    assert planted(tmp_path / "x.csv", columns).rate is None


def test_the_time_of_a_loss_is_no_loss(tmp_path):
    rate = planted(tmp_path / "x.csv", {"loss_ms": lambda *_: 7.0})
    assert rate.log.last("loss") == pytest.approx(3 / ROWS)
    assert not rate.log.uncertain
