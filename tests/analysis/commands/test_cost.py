"""`cost` counts GPU-hours and money, and marks the front."""

import json

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def cost(tmp_path, capsys):
    """Plants runs and a file of rates; the rows of `cost --json` by run, and the remarks."""

    def run(rates: str | None, **truths: SyntheticRun):
        folders = [str(generate_run(tmp_path / name, truth)) for name, truth in truths.items()]
        flags = []
        if rates is not None:
            (tmp_path / "rates.yaml").write_text(rates)
            flags = ["--rates", str(tmp_path / "rates.yaml")]
        assert main(["cost", *folders, "--json", *flags]) == 0
        output = capsys.readouterr()
        return {row["run"]: row for row in json.loads(output.out)["runs"]}, output.err

    return run


def test_gpu_hours_are_ranks_times_wall_time(cost):
    found, _ = cost(None, a=SyntheticRun(cv=1e-9, ranks=4))
    assert found["a"]["gpu_hours"] == pytest.approx(4 * (20 + 500) / 3600, rel=1e-3)
    assert "money" not in found["a"]


def test_money_is_by_the_longest_name_that_fits(cost):
    rates = "A100: 2\nA100-SXM4-80GB: 3.0\n"
    found, _ = cost(
        rates, a=SyntheticRun(gpu="NVIDIA A100-SXM4-80GB"), b=SyntheticRun(gpu="NVIDIA A100-PCIE")
    )
    assert found["a"]["money"] / found["a"]["gpu_hours"] == pytest.approx(3)
    assert found["b"]["money"] / found["b"]["gpu_hours"] == pytest.approx(2)


def test_an_unknown_gpu_has_no_price_and_is_named(cost):
    found, err = cost("H100: 2", a=SyntheticRun())
    assert "money" not in found["a"]
    assert "a: no rate for NVIDIA A40" in err


def test_the_front_holds_what_nothing_beats(cost):
    found, _ = cost(
        "A40: 1\nA100: 2",
        cheap=SyntheticRun(),
        fast=SyntheticRun(gpu="NVIDIA A100", steps_per_s=7),
        beaten=SyntheticRun(steps_per_s=3),
    )
    assert {name for name, row in found.items() if row.get("front")} == {"cheap", "fast"}


@pytest.mark.parametrize("text", ["", "5", "A100: x", "A100: -1", ": :", "[1]"])
def test_rates_that_are_none_are_misuse(text, tmp_path, capsys):
    (tmp_path / "rates.yaml").write_text(text)
    run = str(generate_run(tmp_path / "a", SyntheticRun(intervals=20)))
    assert main(["cost", run, "--rates", str(tmp_path / "rates.yaml")]) == 2
